"""A second simulator in plain Python, event by event: slow, and written without a look at the compiled loops."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

ARRIVES, ENDS, LOOKS = 1, 0, 2
"""Kinds of events. Of those at one instant, ends come first, then arrivals; only then are batches started."""


@dataclass
class Server:
    """A server with its own queue; behind a shared queue its own stays empty."""

    queue: deque = field(default_factory=deque)
    serving: list = field(default_factory=list)
    free_at: float = 0.0


class Reference:
    """Servers with constant batch times, and a record of all that happens to them.

    A batch of a server that was idle takes ``idle_extra`` longer; of several the one idle longest serves next.

    Attributes
    ----------
    response
        Response time of each request.
    batches
        Start, end, server and requests of each batch, in order of start.
    inside_s
        Time integral of the number of requests in the system, followed from event to event.
    """

    def __init__(
        self,
        arrivals: Sequence[float],
        times: Sequence[float],
        servers: int,
        routing,
        delay=0.0,
        choices=(),
        *,
        idle_extra=0.0,
    ):
        self.arrivals, self.times, self.delay, self.routing = arrivals, times, delay, routing
        self.servers = [Server() for _ in range(servers)]
        self.choices, self.turn, self.idle_extra = choices, 0, idle_extra
        self.shared = deque()
        self.response = [math.nan] * len(arrivals)
        self.batches = []
        self.inside_s = 0.0
        self.events = [(time, ARRIVES, i) for i, time in enumerate(arrivals)]
        heapq.heapify(self.events)
        self._run()

    def _run(self):
        last, inside = 0.0, 0
        while self.events:
            now = self.events[0][0]
            self.inside_s += inside * (now - last)
            last = now
            while self.events and self.events[0][0] == now:
                _, kind, which = heapq.heappop(self.events)
                if kind == ENDS:
                    for i in self.servers[which].serving:
                        self.response[i] = now - self.arrivals[i]
                        inside -= 1
                    self.servers[which].serving = []
                    self.servers[which].free_at = now
                elif kind == ARRIVES:
                    self._route(which)
                    inside += 1
            for number in sorted(range(len(self.servers)), key=lambda number: self.servers[number].free_at):
                self._start(number, now)

    def _route(self, i):
        if self.routing == "central_queue":
            self.shared.append(i)
        elif self.routing == "round_robin":
            self.servers[i % len(self.servers)].queue.append(i)
        elif self.routing == "random":
            self.servers[self.choices[i]].queue.append(i)
        else:
            in_turn = [(self.turn + k) % len(self.servers) for k in range(len(self.servers))]
            fewest = min(in_turn, key=lambda s: len(self.servers[s].queue) + len(self.servers[s].serving))
            self.servers[fewest].queue.append(i)
            self.turn = fewest + 1

    def _start(self, number, now):
        server = self.servers[number]
        queue = self.shared if self.routing == "central_queue" else server.queue
        if server.serving or not queue:
            return
        deadline = self.arrivals[queue[0]] + self.delay
        if len(queue) < len(self.times) and now < deadline:
            heapq.heappush(self.events, (deadline, LOOKS, number))
            return
        server.serving = [queue.popleft() for _ in range(min(len(queue), len(self.times)))]
        end = now + self.times[len(server.serving) - 1] + (self.idle_extra if now > server.free_at else 0.0)
        heapq.heappush(self.events, (end, ENDS, number))
        self.batches.append((now, end, number, list(server.serving)))
