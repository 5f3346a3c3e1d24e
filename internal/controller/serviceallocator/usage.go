package serviceallocator

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// usageTime limits the time of the reads in Usage.
const usageTime = 5 * time.Second

// Usage returns how many addresses and node ports are in use and free, for metrics. Figures that cannot be read
// are missing from the result.
func (s *Services) Usage() (ranges []AllocatedRange, portsUsed, portsFree int) {
	ctx, cancel := context.WithTimeout(context.Background(), usageTime)
	defer cancel()
	w := &allocation{s: s, ctx: ctx}
	var all []cidr
	for _, family := range s.Families {
		found, err := w.ranges(family, cachedState)
		if err == nil {
			all = append(all, found...)
		}
	}
	used := make([]uint64, len(all))
	view, err := w.view(s.Registry.Resource(ipAddresses), cachedState)
	if err == nil {
		err = view.Ascend(ctx, "", "", cache.Streaming, func(o *cache.Object) bool {
			if a, err := netip.ParseAddr(o.Key); err == nil {
				for i := range all {
					if all[i].contains(a) {
						used[i]++
					}
				}
			}
			return true
		})
	}
	for i, c := range all {
		if err == nil {
			ranges = append(ranges, AllocatedRange{
				CIDR: c.prefix.String(), Allocated: used[i], Available: c.size - min(used[i], c.size),
			})
		}
	}
	if ports, err := s.claimPorts(ctx, false, nil); err == nil {
		for port := ports.ports.within.First; port <= ports.ports.within.Last; port++ {
			if ports.ports.has(port) {
				portsUsed++
			}
		}
		portsFree = ports.ports.within.size() - portsUsed
	}
	return ranges, portsUsed, portsFree
}

// allocateIP allocates an address of the family: the wanted one, or any free one if wanted is "". It records the
// attempt in the metrics.
func (al *allocation) allocateIP(svc *corev1.Service, family corev1.IPFamily, wanted string) (string, error) {
	start := time.Now()
	ip, err := al.chooseIP(svc, family, wanted)
	if !al.dryRun {
		al.s.Metrics.Address(al.rangeOf(family, ip), wanted != "", err == nil, time.Since(start))
	}
	return ip, err
}

// rangeOf returns the range that contains an address, else the first range of the family; "" if there is none.
func (al *allocation) rangeOf(family corev1.IPFamily, ip string) string {
	ranges, err := al.ranges(family, cachedState)
	if err != nil || len(ranges) == 0 {
		return ""
	}
	if a, err := netip.ParseAddr(ip); err == nil {
		for _, c := range ranges {
			if c.contains(a.Unmap()) {
				return c.prefix.String()
			}
		}
	}
	return ranges[0].prefix.String()
}
