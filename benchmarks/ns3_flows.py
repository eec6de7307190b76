"""Packets instead of flows: TCP transfers over a small network in ns-3, for ``tests/flows/test_packets_ns3.py``.

    python benchmarks/ns3_flows.py given.json ended.json

Runs where the PyPI wheel ``ns3`` is (extra ``ns3``; its import alone takes half a minute). ``given.json``: ``nodes``, ``links`` [a, b,
bytes/s, seconds], ``flows`` [from, to, bytes, start]. ``ended.json``: the second at which the last byte of each has arrived.
Ways are ns-3's global routes, senders TCP with buffers of the whole transfer.
"""

from __future__ import annotations

import json
import sys

SCENARIO = """
#include <map>
std::map<uint32_t, std::pair<uint64_t, double>> arrived;  // by port: bytes, time of the last
void took(uint32_t port, ns3::Ptr<const ns3::Packet> packet, const ns3::Address&) {
  arrived[port].first += packet->GetSize();
  arrived[port].second = ns3::Simulator::Now().GetSeconds();
}
std::vector<double> run(uint32_t nodes, std::vector<double> links, std::vector<double> flows) {
  using namespace ns3;
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 28));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 28));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  NodeContainer all;
  all.Create(nodes);
  InternetStackHelper internet;
  internet.Install(all);
  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
  std::vector<Ipv4Address> first(nodes);
  std::vector<bool> known(nodes, false);
  for (size_t i = 0; i + 3 < links.size(); i += 4) {
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(links[i + 2] * 8))));
    cable.SetChannelAttribute("Delay", TimeValue(Seconds(links[i + 3])));
    cable.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("100p"));
    uint32_t ends[2] = {uint32_t(links[i]), uint32_t(links[i + 1])};
    NetDeviceContainer devices = cable.Install(NodeContainer(all.Get(ends[0]), all.Get(ends[1])));
    Ipv4InterfaceContainer made = addresses.Assign(devices);
    addresses.NewNetwork();
    for (int e = 0; e < 2; e++)
      if (!known[ends[e]]) { first[ends[e]] = made.GetAddress(e); known[ends[e]] = true; }
  }
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();
  for (size_t i = 0; i + 3 < flows.size(); i += 4) {
    uint32_t port = 5000 + i / 4, to = uint32_t(flows[i + 1]);
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    ApplicationContainer there = sink.Install(all.Get(to));
    there.Start(Seconds(0));
    there.Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&took, port));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(first[to], port));
    bulk.SetAttribute("MaxBytes", UintegerValue(uint64_t(flows[i + 2])));
    bulk.SetAttribute("SendSize", UintegerValue(1448));
    ApplicationContainer here = bulk.Install(all.Get(uint32_t(flows[i])));
    here.Start(Seconds(flows[i + 3]));
  }
  Simulator::Stop(Seconds(600));
  Simulator::Run();
  std::vector<double> out;
  for (size_t i = 0; i + 3 < flows.size(); i += 4) {
    auto one = arrived[5000 + i / 4];
    out.push_back(one.first == uint64_t(flows[i + 2]) ? one.second : -1.0);
  }
  Simulator::Destroy();
  arrived.clear();
  return out;
}
"""


def main() -> None:
    given, ended = sys.argv[1:]
    with open(given, encoding="utf-8") as file:
        asked = json.load(file)
    from ns import ns

    ns.cppyy.cppdef(SCENARIO)
    vector = ns.cppyy.gbl.std.vector["double"]
    out = []
    for one in asked:
        columns = (vector([float(x) for row in one[name] for x in row]) for name in ("links", "flows"))
        out.append([float(x) for x in ns.cppyy.gbl.run(one["nodes"], *columns)])
    with open(ended, "w", encoding="utf-8") as file:
        json.dump(out, file)


if __name__ == "__main__":
    main()
