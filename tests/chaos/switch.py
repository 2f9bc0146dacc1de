"""A switch between machines: each has a TUN device, and packets between two of them are carried by rules.

    switch.py NAME=ADDRESS...

It makes a device for each name in its own network namespace, and prints `ready`. Each line of its input has the rules as
JSON, `[{"from": ADDRESS, "to": ADDRESS, "loss": 0.1, ...}, ...]`, which replace those before; it prints `done` then.
"""

import fcntl
import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time

# linux/if_tun.h
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
DO_NOT_FRAGMENT = 0x4000
ICMP_HEAD = struct.Struct("!BBHHH")
IP_HEAD = struct.Struct("!BBHHHBBH4s4s")
LENGTH_MAX = 65_535


def device(name):
    """Makes a device, which exists as long as the descriptor."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def checksum(data):
    """The checksum of IP and ICMP (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def too_big(packet, mtu):
    """What a router says to the sender of a packet that is too long for the next link (RFC 1191)."""
    quoted = packet[:28]
    icmp = ICMP_HEAD.pack(3, 4, 0, 0, mtu) + quoted
    icmp = ICMP_HEAD.pack(3, 4, checksum(icmp), 0, mtu) + quoted
    parts = [0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0, packet[16:20], packet[12:16]]
    parts[7] = checksum(IP_HEAD.pack(*parts))
    return IP_HEAD.pack(*parts) + icmp


class Switch:
    def __init__(self, names):
        self.devices = {socket.inet_aton(address): device(name) for name, address in names}
        self.rules = {}
        self.waiting = []
        self.number = 0
        self.random = random.Random(1)

    def set_rules(self, text):
        self.rules = {(socket.inet_aton(rule["from"]), socket.inet_aton(rule["to"])): rule for rule in json.loads(text)}

    def send(self, target, packet):
        try:
            os.write(self.devices[target], packet)
        except (KeyError, OSError):
            pass  # Nobody has the address, or its queue is full: the network loses packets, too.

    def carry(self, packet):
        if packet[0] >> 4 != 4:
            return
        source, target = packet[12:16], packet[16:20]
        rule = self.rules.get((source, target))
        if rule is None:
            self.send(target, packet)
            return
        chance = self.random.random
        if rule.get("cut") or chance() < rule.get("loss", 0):
            return
        mtu = rule.get("mtu", LENGTH_MAX)
        if len(packet) > mtu and struct.unpack_from("!H", packet, 6)[0] & DO_NOT_FRAGMENT:
            self.send(source, too_big(packet, mtu))
            return
        for _ in range(2 if chance() < rule.get("duplicate", 0) else 1):
            delay = 0 if chance() < rule.get("reorder", 0) else rule.get("delay", 0) + chance() * rule.get("jitter", 0)
            self.number += 1
            heapq.heappush(self.waiting, (time.monotonic() + delay, self.number, target, packet))

    def run(self):
        poll = select.epoll()
        for tun in [sys.stdin.fileno(), *self.devices.values()]:
            poll.register(tun, select.EPOLLIN)
        while True:
            wait = max(0, self.waiting[0][0] - time.monotonic()) if self.waiting else -1
            for ready, _ in poll.poll(wait):
                if ready == sys.stdin.fileno():
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self.set_rules(line)
                    print("done", flush=True)
                    continue
                try:
                    while True:
                        self.carry(os.read(ready, LENGTH_MAX))
                except OSError:
                    pass  # Everything was read, or the device is down.
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self.waiting)
                self.send(target, packet)


switch = Switch([word.split("=") for word in sys.argv[1:]])
print("ready", flush=True)
switch.run()
