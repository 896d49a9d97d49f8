// Runs stock tools one after the other in one JVM, so that a test of many forms does not wait for a JVM each time. A line of input is a command: the
// class and its arguments, tab separated. What it prints goes to the output, behind it a line with a zero byte and the exit code.
import java.io.*;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.internals.Exit;

public class Driver {
    static class Ended extends RuntimeException {
        final int code;
        Ended(int code) { this.code = code; }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Ended(code); });
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            String[] arguments = java.util.Arrays.copyOfRange(words, 1, words.length);
            ByteArrayOutputStream printed = new ByteArrayOutputStream(), complained = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true));
            System.setErr(new PrintStream(complained, true));
            int code = 0;
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (java.lang.reflect.InvocationTargetException error) {
                if (error.getCause() instanceof Ended) {
                    code = ((Ended) error.getCause()).code;
                } else {
                    error.getCause().printStackTrace();
                    code = 1;
                }
            } finally {
                System.out.flush();
                System.err.flush();
            }
            out.write(printed.toByteArray());
            out.write(complained.toByteArray());
            out.println("\0" + code);
            out.flush();
        }
    }
}
