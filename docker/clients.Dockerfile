# The official Java clients' tests (compat-tests/java) in a container: they run against BOOTSTRAP.
FROM eclipse-temurin:17-jre
RUN apt-get update && \
    apt-get install -y --no-install-recommends maven openjdk-17-jdk-headless && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /clients
COPY compat-tests/java/pom.xml .
COPY compat-tests/java/src src
# Compiles, and fetches all that a run needs (a run of no test resolves the test engine too).
RUN mvn -q -B test -Dtest=none -Dsurefire.failIfNoSpecifiedTests=false
CMD ["mvn", "-q", "-B", "test"]
