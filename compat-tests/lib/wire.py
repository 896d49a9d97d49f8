"""Kafka's requests and responses as Python dictionaries, by the schemas that kavka itself is generated from.

    connection = Connection("127.0.0.1:9092")
    answer = connection.ask("EndTxn", 5, transactionalId="t", producerId=1, producerEpoch=0, committed=True)

A field that is left out has its default. Only what tests need is here: no records are read, unknown tags are skipped.
"""
import pathlib
import re
import socket
import struct
import uuid

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "src" / "protocol" / "schemas" / "rpc.schema"


def _in_range(text, version):
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(\+|-(\d+))?", part)
        if match:
            low = int(match[1])
            high = low if match[2] is None else (1 << 30 if match[2] == "+" else int(match[3]))
            if low <= version <= high:
                return True
    return False


class Field:
    def __init__(self, name, kind, versions, attributes):
        self.name = name[0].lower() + name[1:]
        self.kind = kind
        self.versions = versions
        self.attributes = attributes
        self.fields = []

    def has(self, attribute, version):
        return attribute in self.attributes and _in_range(self.attributes[attribute], version)

    def tag(self, version):
        if "tag" not in self.attributes:
            return None
        number, _, versions = self.attributes["tag"].partition("@")
        return int(number) if _in_range(versions or self.versions, version) else None

    def is_nullable_struct(self, version):
        """A list of structs may be null; its structs are not."""
        return self.has("nullable", version) and not self.kind.startswith("[]")

    def default(self, version):
        if self.kind.startswith("[]"):
            return None if self.attributes.get("default") == "null" else []
        text = self.attributes.get("default")
        if text == "null":
            return None
        if self.kind in ("string", "records", "bytes"):
            if text is None and self.kind != "string":
                return None
            return (text or "").strip('"')
        if self.kind == "bool":
            return text is not None and text.lower() == "true"
        if self.kind == "uuid":
            return uuid.UUID(int=0)
        if re.match(r"u?int|float", self.kind):
            return int(text, 0) if text else 0
        return {}


class Message:
    def __init__(self, name, attributes):
        self.name = name
        self.key = int(attributes["key"])
        self.flexible = attributes.get("flexible", "none")
        self.fields = []
        self.structs = {}

    def is_flexible(self, version):
        return _in_range(self.flexible, version)


def _parse():
    messages = {}
    message = None
    stack = []
    for line in SCHEMAS.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        words = line.split()
        attributes = dict(word.partition("=")[::2] for word in words[1:])
        if depth == 0:
            message = messages[words[0]] = Message(words[0], attributes) if "key" in attributes else None
            stack = [message]
            continue
        if message is None:
            continue
        del stack[depth:]
        if words[0] == "struct":
            field = Field(words[1], "struct", words[2], {})
            message.structs[words[1]] = field
        else:
            field = Field(words[0], words[1], words[2], attributes)
            stack[-1].fields.append(field)
            if field.fields is not None:
                message.structs.setdefault(words[1].removeprefix("[]"), field)
        stack.append(field)
    return messages


MESSAGES = _parse()
_FORMATS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}


def _varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class _Writer:
    def __init__(self, message, version):
        self.message, self.version, self.flexible = message, version, message.is_flexible(version)

    def length(self, value, form):
        if self.flexible:
            return _varint(0 if value is None else value + 1)
        return struct.pack(">" + form, -1 if value is None else value)

    def value(self, field, kind, value):
        if kind.startswith("[]"):
            out = self.length(None if value is None else len(value), "i")
            return out + b"".join(self.value(field, kind[2:], item) for item in value or [])
        if kind in _FORMATS:
            return struct.pack(">" + _FORMATS[kind], value)
        if kind == "bool":
            return bytes([bool(value)])
        if kind == "uuid":
            return value.bytes
        if kind == "string":
            data = None if value is None else value.encode(errors="surrogateescape")
            return self.length(None if data is None else len(data), "h") + (data or b"")
        if kind in ("bytes", "records"):
            return self.length(None if value is None else len(value), "i") + (value or b"")
        fields = self.message.structs[kind].fields
        if field.is_nullable_struct(self.version):
            return b"\xff" if value is None else b"\1" + self.struct(fields, value)
        return self.struct(fields, value)

    def struct(self, fields, values):
        unknown = set(values) - {field.name for field in fields}
        if unknown:
            raise KeyError(f"{self.message.name} has no {unknown}")
        out, tags = b"", {}
        for field in fields:
            if not _in_range(field.versions, self.version):
                continue
            value = values.get(field.name, field.default(self.version))
            tag = field.tag(self.version)
            if tag is None:
                out += self.value(field, field.kind, value)
            elif field.name in values:
                tags[tag] = self.value(field, field.kind, value)
        if self.flexible:
            out += _varint(len(tags))
            for tag in sorted(tags):
                out += _varint(tag) + _varint(len(tags[tag])) + tags[tag]
        return out


class _Reader:
    def __init__(self, message, version, data):
        self.message, self.version, self.flexible = message, version, message.is_flexible(version)
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise ValueError(f"{self.message.name} version {self.version} ends early")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form):
        form = ">" + form
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self, form):
        return self.varint() - 1 if self.flexible else self.number(form)

    def value(self, field, kind):
        if kind.startswith("[]"):
            count = self.length("i")
            return None if count < 0 else [self.value(field, kind[2:]) for _ in range(count)]
        if kind in _FORMATS:
            return self.number(_FORMATS[kind])
        if kind == "bool":
            return self.take(1) != b"\0"
        if kind == "uuid":
            return uuid.UUID(bytes=self.take(16))
        if kind == "string":
            count = self.length("h")
            return None if count < 0 else self.take(count).decode()
        if kind in ("bytes", "records"):
            count = self.length("i")
            return None if count < 0 else self.take(count)
        if field.is_nullable_struct(self.version) and self.number("b") < 0:
            return None
        return self.struct(self.message.structs[kind].fields)

    def struct(self, fields):
        values, tagged = {}, {}
        for field in fields:
            if _in_range(field.versions, self.version):
                tag = field.tag(self.version)
                if tag is None:
                    values[field.name] = self.value(field, field.kind)
                else:
                    tagged[tag] = field
        if self.flexible:
            for _ in range(self.varint()):
                tag, size = self.varint(), self.varint()
                if tag in tagged:
                    values[tagged[tag].name] = self.value(tagged[tag], tagged[tag].kind)
                else:
                    self.take(size)
        return values


class Connection:
    """One connection; requests are answered in order."""

    def __init__(self, bootstrap, client_id="raw", timeout=30):
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.client_id = client_id
        self.correlation = 0
        self.waiting = []

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, name, version, **fields):
        message = MESSAGES[name + "Request"]
        self.correlation += 1
        client_id = self.client_id.encode(errors="surrogateescape")
        header = struct.pack(">hhih", message.key, version, self.correlation, len(client_id)) + client_id
        if message.is_flexible(version):
            header += b"\0"
        frame = header + _Writer(message, version).struct(message.fields, fields)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        self.waiting.append((name, version, self.correlation))

    def receive(self):
        name, version, correlation = self.waiting.pop(0)
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        message = MESSAGES[name + "Response"]
        reader = _Reader(message, version, data)
        assert reader.number("i") == correlation
        if message.is_flexible(version) and name != "ApiVersions":
            reader.take(1)
        values = reader.struct(message.fields)
        if reader.at != len(data):
            raise ValueError(f"{len(data) - reader.at} bytes are left of {name} version {version}")
        return values

    def ask(self, name, version, **fields):
        self.send(name, version, **fields)
        return self.receive()

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("closed by the broker")
            data += part
        return data


_CRC_TABLE = []
for _index in range(256):
    _crc = _index
    for _ in range(8):
        _crc = _crc >> 1 ^ (0x82F63B78 if _crc & 1 else 0)
    _CRC_TABLE.append(_crc)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def batch(values, producer_id=-1, producer_epoch=-1, sequence=-1, transactional=False, timestamp=1_700_000_000_000):
    """A record batch of magic 2, uncompressed. A value is text, or a key and a value of bytes; else keys are null."""
    records = b""
    for delta, value in enumerate(values):
        key, value = value if isinstance(value, tuple) else (None, value.encode())
        key = _varint(1) if key is None else _varint(len(key) << 1) + key
        body = b"\0\0" + _varint(delta << 1) + key + _varint(len(value) << 1) + value + b"\0"
        records += _varint(len(body) << 1) + body
    attributes = 0x10 if transactional else 0
    covered = struct.pack(">hiqqqhii", attributes, len(values) - 1, timestamp, timestamp, producer_id, producer_epoch,
                          sequence, len(values)) + records
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def read_batches(data):
    """(base offset, producer id, is control, [values]) of each whole, uncompressed batch."""
    found, at = [], 0
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        attributes, _, _, _, producer_id, _, _, count = struct.unpack_from(">hiqqqhii", data, at + 21)
        reader = _Zigzag(data, at + 61)
        values = []
        for _ in range(count):
            end = reader.number() + reader.at
            reader.at += 1
            reader.number(), reader.number()
            size = reader.number()
            reader.at += max(size, 0)
            size = reader.number()
            values.append(None if size < 0 else data[reader.at:reader.at + size])
            reader.at = end
        found.append((base, producer_id, bool(attributes & 0x20), values))
        at += 12 + length
    return found


class _Zigzag:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def number(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7


def committed_values(connection, topic, topic_partition=0):
    """What a consumer with read_committed reads of a small partition."""
    values, skipping, offset, end = [], set(), 0, 1
    while offset < end:
        # A fetch goes no further than a segment.
        answer = connection.ask("Fetch", 12, maxWaitMs=100, minBytes=1, maxBytes=1 << 20, isolationLevel=1, sessionEpoch=-1, topics=[
            {"topic": topic, "partitions": [
                {"partition": topic_partition, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}]}])
        partition = answer["responses"][0]["partitions"][0]
        end = partition["lastStableOffset"]
        aborted = sorted((a["firstOffset"], a["producerId"]) for a in partition["abortedTransactions"] or [])
        batches = read_batches(partition["records"] or b"")
        for base, producer_id, is_control, batch in batches:
            while aborted and aborted[0][0] <= base:
                skipping.add(aborted.pop(0)[1])
            if is_control:
                skipping.discard(producer_id)
            elif producer_id not in skipping:
                values += [value.decode() for value in batch]
            offset = base + len(batch)
        if not batches:
            break
    return values


def error_names():
    """Names of error codes, from the same schemas."""
    names = {}
    for line in (SCHEMAS.parent / "errors.tsv").read_text().splitlines():
        for position, word in enumerate(line.split("\t")):
            if re.fullmatch(r"-?\d+", word):
                other = [w for w in line.split("\t") if re.fullmatch(r"[A-Z][A-Z_0-9]+", w)]
                if other:
                    names[int(word)] = other[0]
                break
    return names
