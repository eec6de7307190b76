"""The peer of benchmarks/flows.py: the same flows over the same links in SimGrid, run by a Python that has it.

    /usr/bin/python3 benchmarks/simgrid_flows.py FLOWS.json OUT.json

FLOWS.json has ``first, links, rate, size`` as ``flows.maxmin.simulate`` takes them; OUT.json gets the finish times in seconds. The
network model is SimGrid's CM02 without its corrections for TCP (a flow gets all of its max-min share, latency 0), so that both
compute the same. Each pair of hosts has one flow, whose route is told link by link.
"""

import json
import sys
import time

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone


def main() -> None:
    out = sys.argv[2]
    with open(sys.argv[1]) as file:
        flows = json.load(file)
    first, links, rate, size = (flows[name] for name in ("first", "links", "rate", "size"))
    engine = Engine(["flows", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0",
                     "--cfg=network/bandwidth-factor:1", "--cfg=network/latency-factor:1", "--cfg=network/weight-S:0",
                     "--log=root.thres:error"])  # fmt: skip
    zone = NetZone.create_full_zone("all")
    cables = [zone.create_link(f"l{i}", float(r)).set_latency(0).seal() for i, r in enumerate(rate)]
    n = len(first) - 1
    ended = [0.0] * n

    def sender(f: int) -> None:
        comm = Comm.sendto_async(sources[f], targets[f], int(size[f]))
        comm.wait()
        ended[f] = Engine.clock

    sources, targets = [], []
    for f in range(n):
        a, b = zone.create_host(f"a{f}", 1e9).seal(), zone.create_host(f"b{f}", 1e9).seal()
        sources.append(a)
        targets.append(b)
        way = [LinkInRoute(cables[i]) for i in links[first[f] : first[f + 1]]]
        zone.add_route(a.netpoint, b.netpoint, None, None, way, False)
    zone.seal()
    for f in range(n):
        Actor.create(f"s{f}", sources[f], sender, f)
    start = time.perf_counter()
    engine.run()
    print(f"{time.perf_counter() - start:.6f}")
    with open(out, "w") as file:
        json.dump(ended, file)

if __name__ == "__main__":
    main()
