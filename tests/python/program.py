"""A program as a user of the iceoryx2 Python wheel writes it: publishes or receives COUNT messages of one kind and checks them.

usage: program.py publish|subscribe number|slice|stamped|reading|readings SERVICE COUNT

It finds its iceoryx2 domain as every program does, in config/iceoryx2.toml of its working directory. Of numbers and (stamped) slices of
bytes nothing is lost: safe overflow is off. The structs `reading` and slices of them (`readings`) have the wheel's default settings, by
which a slow reader loses messages: they are published until standard input ends, and their numbers only have to grow. Prints
"done COUNT" at the end; a wrong message ends it with an error.
"""

import ctypes
import sys
import threading
import time

import iceoryx2 as iox2


class Stamp(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("colour", ctypes.c_uint64)]

    @staticmethod
    def type_name():
        return "Stamp"


class Reading(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("values", ctypes.c_float * 5), ("valid", ctypes.c_bool)]

    @staticmethod
    def type_name():
        return "Reading"

    def fill(self, number):
        self.number, self.valid = number, number % 2 == 0
        for i in range(5):
            self.values[i] = number / 4 + i

    def check(self, number):
        expected = Reading()
        expected.fill(number)
        if [*self.values, self.valid] != [*expected.values, expected.valid]:
            raise SystemExit(f"message {number} arrived changed: {[*self.values]}")


LENGTHS = [1, 0, 17, 4096, 100_000, 3]


def content(number):
    """The bytes of slice NUMBER."""
    length = LENGTHS[number % len(LENGTHS)]
    return bytes((i * 7 + number) % 256 for i in range(length))


def service(node, kind, name):
    payload = {
        "number": ctypes.c_uint64,
        "slice": iox2.Slice[ctypes.c_uint8],
        "stamped": iox2.Slice[ctypes.c_uint8],
        "reading": Reading,
        "readings": iox2.Slice[Reading],
    }[kind]
    builder = node.service_builder(iox2.ServiceName.new(name)).publish_subscribe(payload)
    if kind in ("reading", "readings"):
        return builder.open_or_create()
    if kind == "stamped":
        builder = builder.user_header(Stamp)
    return builder.enable_safe_overflow(False).subscriber_max_buffer_size(8).open_or_create()


def publish_readings(opened, kind, count):
    builder = opened.publisher_builder()
    if kind == "readings":
        builder = builder.initial_max_slice_len(7)
    publisher = builder.create()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    number = 0
    while not ended.wait(0.002):
        number += 1
        if kind == "reading":
            reading = Reading()
            reading.fill(number)
            publisher.send_copy(reading)
        else:
            sample = publisher.loan_slice_uninit(number % 8)
            readings = ctypes.cast(sample.payload_ptr, ctypes.POINTER(Reading))
            for i in range(number % 8):
                readings[i].fill(number + i)
            sample.assume_init().send()
        if number == count:
            print("done", count, flush=True)


def subscribe_readings(opened, kind, count):
    subscriber = opened.subscriber_builder().create()
    print("ready", flush=True)
    last = received = 0
    while received < count:
        if (sample := subscriber.receive()) is None:
            time.sleep(0.0005)
            continue
        payload = sample.payload()
        if kind == "reading":
            readings = [payload.contents]
        else:
            # The wheel says the length of a received slice in bytes, on one host as well.
            readings = [payload[i] for i in range(payload.len() // ctypes.sizeof(Reading))]
        if readings:
            number = readings[0].number
            if number <= last or (kind == "readings" and len(readings) != number % 8):
                raise SystemExit(f"message {number} of {len(readings)} readings came after {last}")
            last, received = number, received + 1
            for i, reading in enumerate(readings):
                reading.check(number + i)
                if reading.number != number + i:
                    raise SystemExit(f"reading {i} of message {number} has number {reading.number}")
        sample.delete()
    print("done", count, flush=True)
    sys.stdin.read()


def publish(opened, kind, count):
    builder = opened.publisher_builder()
    if kind != "number":
        builder = builder.initial_max_slice_len(max(LENGTHS))
    publisher = builder.create()
    while opened.dynamic_config.number_of_subscribers == 0:
        time.sleep(0.005)
    # iceoryx2 never waits for a subscriber that has not looked for this publisher yet.
    time.sleep(0.2)
    for number in range(count):
        if kind == "number":
            publisher.send_copy(ctypes.c_uint64(number * 0x0101_0101_0101))
            continue
        data = content(number)
        sample = publisher.loan_slice_uninit(len(data))
        ctypes.memmove(sample.payload_ptr, data, len(data))
        if kind == "stamped":
            sample.user_header().contents.number = number
            sample.user_header().contents.colour = number ^ 0xFF
        sample.assume_init().send()
    print("done", count, flush=True)
    # Its memory must live until the last message has been read.
    sys.stdin.read()


def subscribe(opened, kind, count):
    subscriber = opened.subscriber_builder().create()
    print("ready", flush=True)
    for number in range(count):
        while (sample := subscriber.receive()) is None:
            time.sleep(0.0005)
        if kind == "number":
            expected, got = number * 0x0101_0101_0101, sample.payload().contents.value
        else:
            payload = sample.payload()
            expected, got = content(number), ctypes.string_at(payload.as_ptr(), payload.len())
        if kind == "stamped":
            header = sample.user_header().contents
            if (header.number, header.colour) != (number, number ^ 0xFF):
                raise SystemExit(f"message {number} has the header of {header.number}")
        if expected != got:
            raise SystemExit(f"message {number} arrived changed: {got[:40]!r}" if kind != "number" else f"{got} is not {expected}")
        sample.delete()
    print("done", count, flush=True)
    sys.stdin.read()


def main():
    iox2.set_log_level(iox2.LogLevel.Error)
    role, kind, name, count = sys.argv[1:]
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    if kind in ("reading", "readings"):
        roles = {"publish": publish_readings, "subscribe": subscribe_readings}
    else:
        roles = {"publish": publish, "subscribe": subscribe}
    roles[role](service(node, kind, name), kind, int(count))


main()
