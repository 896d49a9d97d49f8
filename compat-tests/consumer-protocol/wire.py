"""Kafka's wire format as far as group requests need it: flexible versions, written by hand so that odd requests can be made."""
import socket
import struct
import uuid


def uvarint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def i8(n): return struct.pack(">b", n)
def i16(n): return struct.pack(">h", n)
def i32(n): return struct.pack(">i", n)
def i64(n): return struct.pack(">q", n)
def boolean(b): return b"\1" if b else b"\0"


def string(text):
    """A compact string, nullable."""
    if text is None:
        return b"\0"
    data = text.encode()
    return uvarint(len(data) + 1) + data


def data(blob):
    return uvarint(len(blob) + 1) + blob


def array(items, encode=lambda item: item):
    if items is None:
        return b"\0"
    return uvarint(len(items) + 1) + b"".join(encode(item) for item in items)


TAGS = b"\0"


class Reader:
    def __init__(self, blob):
        self.blob, self.at = blob, 0

    def take(self, count):
        piece = self.blob[self.at:self.at + count]
        assert len(piece) == count, "the answer is too short"
        self.at += count
        return piece

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def i8(self): return self.number(">b")
    def i16(self): return self.number(">h")
    def i32(self): return self.number(">i")
    def i64(self): return self.number(">q")
    def boolean(self): return self.i8() != 0

    def uvarint(self):
        shift = value = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self):
        length = self.uvarint()
        return None if length == 0 else self.take(length - 1).decode()

    def data(self):
        length = self.uvarint()
        return None if length == 0 else self.take(length - 1)

    def uuid(self):
        return uuid.UUID(bytes=self.take(16))

    def array(self, decode):
        length = self.uvarint()
        return None if length == 0 else [decode() for _ in range(length - 1)]

    def tags(self):
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())

    def end(self):
        assert self.at == len(self.blob), f"{len(self.blob) - self.at} bytes too many"


class Connection:
    def __init__(self, port, client_id="raw"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.settimeout(60)
        self.correlation = 0
        self.client_id = client_id

    def send(self, key, version, body):
        self.correlation += 1
        client = self.client_id.encode()
        header = i16(key) + i16(version) + i32(self.correlation) + i16(len(client)) + client + TAGS
        message = header + body
        self.socket.sendall(i32(len(message)) + message)

    def receive(self):
        size = struct.unpack(">i", self.exactly(4))[0]
        reader = Reader(self.exactly(size))
        assert reader.i32() == self.correlation
        reader.tags()
        return reader

    def call(self, key, version, body):
        self.send(key, version, body)
        return self.receive()

    def exactly(self, count):
        out = b""
        while len(out) < count:
            piece = self.socket.recv(count - len(out))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            out += piece
        return out

    def close(self):
        self.socket.close()
