"""What the tests do to a cluster: fail over, move a slot, kill a master."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from servers import Cluster, Server, until

__all__ = ["Nodes"]

ELECTIONS = 2.2
"""Seconds after which masters vote again: twice the time-out of a node, and a little."""


class Nodes:
    """Who is who in a cluster, asked anew every time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._elected = 0.0
        self._clients: dict[Server, Any] = {
            server: server.client(decode_responses=True, socket_timeout=5)
            for server in cluster.servers
        }

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def say(self, server: Server, *words: object) -> Any:
        """A command, told to one node."""
        return self._clients[server].execute_command(*words)

    def alive(self) -> list[Server]:
        """The nodes that run."""
        return [s for s in self.cluster.servers if s.process and s.process.poll() is None]

    def masters(self) -> list[Server]:
        return [server for server in self.alive() if self.say(server, "ROLE")[0] == "master"]

    def owner(self, slot: int) -> Server:
        """The master of a slot; it knows itself."""
        for server in self.masters():
            for start, end, master, *_ in self.say(server, "CLUSTER SLOTS"):
                if start <= slot <= end and master[1] == server.port:
                    return server
        raise ValueError("nobody has this slot")

    def replica_of(self, master: Server) -> Server:
        """A replica of a master that is in step with it."""

        def found() -> Server | None:
            for server in self.alive():
                role = self.say(server, "ROLE")
                if role[0] == "slave" and int(role[2]) == master.port and role[3] == "connected":
                    return server
            return None

        server: Server = until(found, 60, "the master has no replica")
        return server

    def whole(self) -> None:
        """Wait until all nodes that run see every slot served by the same masters, which run."""
        try:
            until(self._agreed, 60)
        except AssertionError:
            logs = [f"{s.port}\n{(s.folder / 'log').read_text()[-2000:]}" for s in self.alive()]
            raise AssertionError("\n".join(["the cluster did not heal", *logs])) from None

    def _agreed(self) -> bool:
        seen = []
        for server in self.alive():
            rows = self.say(server, "CLUSTER SLOTS")
            seen.append(sorted((start, end, master[1]) for start, end, master, *_ in rows))
            if self.say(server, "CLUSTER INFO")["cluster_state"] != "ok":
                return False
        served = sum(end - start + 1 for start, end, _ in seen[0])
        ports = {port for _, _, port in seen[0]}
        masters = {master.port for master in self.masters()}
        return served == 16384 and ports == masters and all(rows == seen[0] for rows in seen)

    # -- what is done to it

    def fail_over(self, master: Server) -> Server:
        """Let a master's replica take its place, in good order."""
        replica = self.replica_of(master)
        time.sleep(max(0.0, self._elected + ELECTIONS - time.monotonic()))
        for _ in range(5):  # it gives up after a while if the others do not vote
            until(lambda: self.say(replica, "CLUSTER FAILOVER"), 60, "it may not take over")
            with contextlib.suppress(AssertionError):
                until(lambda: replica in self.masters(), 10)
                break
        assert replica in self.masters(), "the replica did not take over"
        self._elected = time.monotonic()
        self.whole()
        return replica

    def move(self, slot: int, pause: float = 0.01) -> None:
        """Move a slot to another master, its keys one by one."""
        source = self.owner(slot)
        target = next(server for server in self.masters() if server is not source)
        here, there = (str(self.say(server, "CLUSTER MYID")) for server in (source, target))
        self.say(target, "CLUSTER SETSLOT", slot, "IMPORTING", here)
        self.say(source, "CLUSTER SETSLOT", slot, "MIGRATING", there)
        while True:
            time.sleep(pause)
            keys = self._clients[source].execute_command("CLUSTER GETKEYSINSLOT", slot, 1)
            if not keys:
                break
            self.say(source, "MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
        for server in (target, source, *self.masters()):
            self.say(server, "CLUSTER SETSLOT", slot, "NODE", there)

    def kill(self, master: Server) -> None:
        """Kill a master, and wait until its replica has taken its place."""
        replica = self.replica_of(master)
        master.kill()
        until(lambda: replica in self.masters(), 60, "the replica did not take over")
        self._elected = time.monotonic()
        self.whole()

    def revive(self, server: Server) -> None:
        """Start a node that was killed; it becomes a replica of whoever took its place."""
        server.start()
        until(lambda: self.say(server, "ROLE")[0] == "slave", 60, "it did not become a replica")
        self.whole()
