#!/usr/bin/env python3
"""MQTT 3.1.1 load generator on raw sockets (stdlib only, one thread, epoll).

One process plays every publisher and every subscriber, so clocks agree and
latency needs no synchronisation.  Two ways of driving:

* closed loop (``--rate 0``): at most ``--window`` published messages may be
  waiting for delivery anywhere in the broker; gives sustained throughput
  without filling unbounded broker queues;
* paced (``--rate R``): R messages a second in total, each carrying its send
  time; gives one-way latency percentiles.

Scenarios: p2p (1 -> 1), fanin (50 -> 1), fanout (1 -> 50), idle (N idle
connections), blast (open loop flood, QoS 0: how much is delivered, what
memory does), connect (connect/disconnect churn).

Example:
    taskset -c 1 python3 mqtt_load.py --port 1883 --scenario fanin \
        --qos 1 --size 64 --duration 5 --pid 4242
Prints one JSON object.  With --pid (the broker, same machine) it also reports
broker CPU microseconds per message and RSS.
"""

import argparse
import json
import os
import select
import socket
import struct
import sys
import time

now = time.perf_counter
now_ns = time.perf_counter_ns
SHAPES = {"p2p": (1, 1), "fanin": (50, 1), "fanout": (1, 50), "idle": (0, 0), "blast": (1, 1), "connect": (0, 0)}


def varint(n):
    out = bytearray()
    while True:
        n, low = divmod(n, 128)
        out.append(low | (0x80 if n else 0))
        if not n:
            return bytes(out)


def mstr(s):
    b = s.encode()
    return struct.pack("!H", len(b)) + b


def connect_packet(cid, keepalive=0, user=None, password=None):
    flags, tail = 0x02, b""
    if user is not None:
        flags |= 0x80
        tail += mstr(user)
    if password is not None:
        flags |= 0x40
        tail += mstr(password)
    body = mstr("MQTT") + bytes([4, flags]) + struct.pack("!H", keepalive) + mstr(cid) + tail
    return b"\x10" + varint(len(body)) + body


def subscribe_packet(pid, topic, qos):
    body = struct.pack("!H", pid) + mstr(topic) + bytes([qos])
    return b"\x82" + varint(len(body)) + body


def publish_packet(topic, payload, qos, pid=0, retain=False):
    body = mstr(topic) + (struct.pack("!H", pid) if qos else b"") + payload
    return bytes([0x30 | qos << 1 | int(retain)]) + varint(len(body)) + body


def recv_exact(sock, n):
    buf = b""
    while len(buf) < n:
        part = sock.recv(n - len(buf))
        if not part:
            raise ConnectionError("closed by broker")
        buf += part
    return buf


class ProcStat:
    """CPU seconds and resident kilobytes of the broker process."""

    tick = os.sysconf("SC_CLK_TCK")

    def __init__(self, pid):
        self.pid = pid

    def cpu(self):
        if not self.pid:
            return 0.0
        try:  # nanosecond resolution where available
            total = 0
            for tid in os.listdir(f"/proc/{self.pid}/task"):
                with open(f"/proc/{self.pid}/task/{tid}/schedstat") as fh:
                    total += int(fh.read().split()[0])
            return total / 1e9
        except OSError:
            with open(f"/proc/{self.pid}/stat") as fh:
                f = fh.read().rsplit(")", 1)[1].split()
            return (int(f[11]) + int(f[12])) / self.tick

    def rss_kb(self):
        if not self.pid:
            return 0
        with open(f"/proc/{self.pid}/status") as fh:
            for line in fh:
                if line.startswith("VmRSS"):
                    return int(line.split()[1])
        return 0


class Conn:
    __slots__ = ("acked", "blob", "nexthead", "out", "sent", "sock", "tail", "topic")

    def __init__(self, args, cid):
        self.sock = socket.create_connection((args.host, args.port), timeout=15)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(connect_packet(cid, user=args.user, password=args.password))
        ack = recv_exact(self.sock, 4)
        if ack[0] != 0x20 or ack[3] != 0:
            raise ConnectionError(f"CONNACK {ack.hex()}")
        self.out = b""
        self.tail = b""
        self.acked = self.sent = 0
        self.nexthead = 0

    def send(self, data):
        if self.out:
            self.out += data
            return
        try:
            n = self.sock.send(data)
        except BlockingIOError:
            n = 0
        if n < len(data):
            self.out = bytes(data[n:])

    def flush(self):
        if self.out:
            try:
                n = self.sock.send(self.out)
            except BlockingIOError:
                return
            self.out = self.out[n:]


RING = 2048  # packet ids used by a QoS 1 publisher


class Load:
    def __init__(self, a):
        self.a = a
        self.ps = ProcStat(a.pid)
        pubs, subs = SHAPES[a.scenario]
        self.npub = a.pubs if a.pubs is not None else pubs
        self.nsub = a.subs if a.subs is not None else subs
        self.base = f"{a.prefix}{os.getpid() % 100000:05d}"

    def setup(self):
        a = self.a
        self.subs, self.pubs = [], []
        self.ep = select.epoll()
        self.byfd = {}
        flt = f"{self.base}/+" if a.filter == "plus" else f"{self.base}/000"
        for i in range(self.nsub):
            c = Conn(a, f"ls{os.getpid()}x{i}")
            c.sock.sendall(subscribe_packet(1, flt, a.qos))
            ack = recv_exact(c.sock, 5)
            if ack[0] != 0x90 or ack[4] != a.qos:
                raise ConnectionError(f"SUBACK {ack.hex()}")
            self.subs.append(c)
        payload = b"\0" * max(a.size, 8)
        for i in range(self.npub):
            c = Conn(a, f"lp{os.getpid()}x{i}")
            c.topic = f"{self.base}/{i:03d}"
            if a.qos:
                c.blob = b"".join(publish_packet(c.topic, payload, a.qos, p + 1) for p in range(RING))
            else:
                c.blob = publish_packet(c.topic, payload, 0) * RING
            self.pubs.append(c)
        self.frame = len(publish_packet(f"{self.base}/000", payload, a.qos, 1))
        self.head = 1 + len(varint(self.frame - 2 if self.frame < 130 else self.frame - 3))
        self.pidoff = self.head + 2 + len(f"{self.base}/000")
        self.payoff = self.pidoff + (2 if a.qos else 0)
        for role, conns in (("s", self.subs), ("p", self.pubs)):
            for c in conns:
                c.sock.setblocking(False)
                self.byfd[c.sock.fileno()] = (role, c)
                self.ep.register(c.sock.fileno(), select.EPOLLIN)
        self.recvd = self.sent = self.lost = 0
        self.lat = []

    def take(self, c, want_lat):
        """Count delivered frames on a subscriber; acknowledge them at QoS 1."""
        try:
            data = c.sock.recv(262144)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("subscriber dropped")
        if c.tail:
            data = c.tail + data
        f, n = self.frame, len(data) // self.frame
        end = n * f
        if n and (data[0] >> 4 != 3 or data[(n - 1) * f] >> 4 != 3):
            raise ValueError("unexpected framing: " + data[:8].hex())
        if self.a.qos and n:
            o = self.pidoff
            c.send(b"".join([b"\x40\x02" + data[i : i + 2] for i in range(o, end, f)]))
        if want_lat and n:
            t, o = now_ns(), self.payoff
            for i in range(o, end, f):
                self.lat.append(t - int.from_bytes(data[i : i + 8], "big"))
        c.tail = data[end:]
        self.recvd += n

    def pump(self, timeout, want_lat=False):
        for fd, _ev in self.ep.poll(timeout):
            role, c = self.byfd[fd]
            if role == "s":
                self.take(c, want_lat)
            else:
                try:
                    data = c.sock.recv(65536)
                except BlockingIOError:
                    continue
                if not data:
                    raise ConnectionError("publisher dropped")
                total = len(c.tail) + len(data)
                c.acked += total // 4
                c.tail = b"\0" * (total % 4)
        for c in self.subs:
            if c.out:
                c.flush()
        for c in self.pubs:
            if c.out:
                c.flush()

    def feed(self, c, n):
        """Queue n prebuilt frames on publisher c (ring of packet ids)."""
        f = self.frame
        while n > 0:
            at = c.sent % RING
            k = min(n, RING - at)
            c.send(c.blob[at * f : (at + k) * f])
            c.sent += k
            self.sent += k
            n -= k

    def saturate(self, seconds):
        a, win = self.a, self.a.window
        end = now() + seconds
        last, last_t = -1, now()
        turn = 0
        while (t := now()) < end:
            inflight = self.sent - (self.recvd + self.lost) / max(self.nsub, 1)
            room = int(win - inflight)
            if room >= max(1, min(win // 4, 32)) or (room > 0 and inflight <= 0):
                per = max(1, room // self.npub)
                for _ in range(self.npub):
                    if room <= 0:
                        break
                    c = self.pubs[turn % self.npub]
                    turn += 1
                    if c.out:
                        continue
                    k = min(per, room)
                    if a.qos:
                        k = min(k, a.inflight - (c.sent - c.acked))
                    if k > 0:
                        self.feed(c, k)
                        room -= k
            self.pump(0.005)
            if self.recvd != last:
                last, last_t = self.recvd, t
            elif t - last_t > 2:  # stalled: count what is missing and go on
                self.lost += self.sent * self.nsub - self.recvd - self.lost
                last_t = t

    def paced(self, seconds):
        a, step = self.a, 1.0 / self.a.rate
        filler = b"\0" * (max(a.size, 8) - 8)
        t0 = now()
        k, total = 0, int(seconds * a.rate)
        while k < total:
            due = t0 + k * step
            d = due - now()
            if d > 0:
                self.pump(d if d > 0.0005 else 0, True)
                continue
            c = self.pubs[k % self.npub]
            c.send(publish_packet(c.topic, now_ns().to_bytes(8, "big") + filler, a.qos, c.sent % RING + 1))
            c.sent += 1
            self.sent += 1
            k += 1
            self.pump(0, True)
        stop = now() + 3
        while self.recvd < self.sent * self.nsub and now() < stop:
            self.pump(0.01, True)

    def run(self):
        a = self.a
        if a.scenario == "idle":
            return self.idle()
        if a.scenario == "connect":
            return self.churn()
        self.setup()
        rss0 = self.ps.rss_kb()
        res = {
            "scenario": a.scenario,
            "pubs": self.npub,
            "subs": self.nsub,
            "qos": a.qos,
            "size": a.size,
            "rate": a.rate,
            "window": a.window,
        }
        if a.scenario == "blast":
            return self.blast(res)
        if a.rate:
            self.paced(min(1.0, a.duration / 4))  # warm up
            self.lat.clear()
            s0, r0 = self.sent, self.recvd
            c0, g0, t0 = self.ps.cpu(), time.process_time(), now()
            self.paced(a.duration)
        else:
            self.saturate(min(1.0, a.duration / 4))
            s0, r0 = self.sent, self.recvd
            c0, g0, t0 = self.ps.cpu(), time.process_time(), now()
            self.saturate(a.duration)
        dt, cpu, gen = now() - t0, self.ps.cpu() - c0, time.process_time() - g0
        got, put = self.recvd - r0, self.sent - s0
        res.update(
            in_per_s=round(put / dt),
            out_per_s=round(got / dt),
            lost=self.lost,
            undelivered=self.sent * self.nsub - self.recvd - self.lost,
            generator_cpu=round(gen / dt, 2),
        )
        if a.pid:
            res.update(
                broker_cpu=round(cpu / dt, 2),
                us_per_in=round(1e6 * cpu / max(put, 1), 1),
                us_per_out=round(1e6 * cpu / max(got, 1), 1),
                rss0_kb=rss0,
                rss_kb=self.ps.rss_kb(),
            )
        if self.lat:
            self.lat.sort()

            def q(p):
                return round(self.lat[min(len(self.lat) - 1, int(p * len(self.lat)))] / 1e3, 1)

            res.update(
                p50_us=q(0.5), p90_us=q(0.9), p99_us=q(0.99), p999_us=q(0.999), max_us=round(self.lat[-1] / 1e3, 1)
            )
        return res

    def idle(self):
        a, conns = self.a, []
        r0, c0, t0 = self.ps.rss_kb(), self.ps.cpu(), now()
        for i in range(a.connections):
            c = Conn(a, f"idle{os.getpid()}x{i}")
            if a.subscribe:
                c.sock.sendall(subscribe_packet(1, f"{self.base}/{i:04d}", a.qos))
                recv_exact(c.sock, 5)
            conns.append(c)
        t1, c1 = now(), self.ps.cpu()
        time.sleep(a.duration)
        r1, c2 = self.ps.rss_kb(), self.ps.cpu()
        out = {
            "scenario": "idle",
            "connections": len(conns),
            "subscribe": a.subscribe,
            "rss0_kb": r0,
            "rss_kb": r1,
            "kb_per_conn": round((r1 - r0) / max(1, len(conns)), 1),
            "connect_ms_each": round(1e3 * (t1 - t0) / max(1, len(conns)), 2),
            "connect_cpu_us_each": round(1e6 * (c1 - c0) / max(1, len(conns))),
            "idle_cpu_percent": round(100 * (c2 - c1) / a.duration, 2),
        }
        for c in conns:
            c.sock.close()
        time.sleep(2)
        out["rss_after_close_kb"] = self.ps.rss_kb()
        return out

    def churn(self):
        a, n = self.a, 0
        r0, c0, t0 = self.ps.rss_kb(), self.ps.cpu(), now()
        while now() - t0 < a.duration:
            c = Conn(a, f"churn{os.getpid()}x{n}")
            c.sock.sendall(b"\xe0\x00")
            c.sock.close()
            n += 1
        dt = now() - t0
        time.sleep(2)
        return {
            "scenario": "connect",
            "per_s": round(n / dt),
            "count": n,
            "rss0_kb": r0,
            "rss_kb": self.ps.rss_kb(),
            "cpu_us_each": round(1e6 * (self.ps.cpu() - c0) / max(1, n)),
        }

    def blast(self, res):
        """Open loop: write as fast as TCP takes it; then wait for the rest."""
        a = self.a
        r0, t0 = self.ps.rss_kb(), now()
        peak, nextrss = r0, t0
        end = t0 + a.duration
        c = self.pubs[0]
        while now() < end:
            if not c.out:
                self.feed(c, 64)
            self.pump(0)
            if now() > nextrss:
                peak, nextrss = max(peak, self.ps.rss_kb()), now() + 0.2
        t1, sent, got = now(), self.sent, self.recvd
        last, last_t = self.recvd, now()
        while self.recvd < sent * self.nsub and now() - last_t < 3:
            self.pump(0.02)
            if self.recvd != last:
                last, last_t = self.recvd, now()
            if now() > nextrss:
                peak, nextrss = max(peak, self.ps.rss_kb()), now() + 0.2
        res.update(
            sent_per_s=round(sent / (t1 - t0)),
            got_during=got,
            sent=sent,
            got=self.recvd,
            drain_s=round(last_t - t1, 2),
            rss0_kb=r0,
            peak_rss_kb=peak,
            rss_kb=self.ps.rss_kb(),
        )
        return res


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=1883)
    p.add_argument("--scenario", choices=sorted(SHAPES), default="p2p")
    p.add_argument("--qos", type=int, choices=(0, 1), default=0)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--duration", type=float, default=5)
    p.add_argument("--rate", type=float, default=0)
    p.add_argument("--window", type=int, default=256)
    p.add_argument("--inflight", type=int, default=64, help="unacknowledged QoS 1 publishes a publisher may have")
    p.add_argument("--pubs", type=int)
    p.add_argument("--subs", type=int)
    p.add_argument("--filter", choices=("plus", "exact"), default="plus")
    p.add_argument("--connections", type=int, default=500)
    p.add_argument("--subscribe", action="store_true")
    p.add_argument("--pid", type=int, default=0)
    p.add_argument("--user")
    p.add_argument("--password")
    p.add_argument("--prefix", default="ld")
    a = p.parse_args()
    try:
        out = Load(a).run()
    except (ConnectionError, ValueError, OSError) as e:
        out = {"scenario": a.scenario, "error": f"{type(e).__name__}: {e}"}
    print(json.dumps(out))
    return 1 if "error" in out else 0


if __name__ == "__main__":
    sys.exit(main())
