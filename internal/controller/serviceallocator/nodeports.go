package serviceallocator

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage"
)

// PortRange is a range of ports, including both ends.
type PortRange struct{ First, Last int }

// DefaultNodePorts is the range of node ports without --service-node-port-range.
var DefaultNodePorts = PortRange{30000, 32767}

// ParsePortRange parses "first-last", "first+count" or a single port. The range "first+count" ends at first+count.
func ParsePortRange(s string) (PortRange, error) {
	const most = 65535
	number := func(s string) (int, error) { return strconv.Atoi(strings.TrimSpace(s)) }
	wrong := func(err error) (PortRange, error) {
		return PortRange{}, fmt.Errorf("unable to parse port range: %s: %w", s, err)
	}
	var r PortRange
	var err error
	if from, to, ok := strings.Cut(s, "-"); ok {
		if r.First, err = number(from); err == nil {
			r.Last, err = number(to)
		}
	} else if from, more, ok := strings.Cut(s, "+"); ok {
		var n int
		if r.First, err = number(from); err == nil {
			n, err = number(more)
		}
		r.Last = r.First + n
	} else {
		r.First, err = number(s)
		r.Last = r.First
	}
	switch {
	case err != nil:
		return wrong(err)
	case r.First < 0 || r.Last > most:
		return wrong(fmt.Errorf("the port range cannot go beyond 0 and %d", most))
	case r.Last < r.First:
		return wrong(errors.New("end port cannot be less than start port"))
	}
	return r, nil
}

// String returns the range in the format in which it is stored and sent in responses.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

func (r PortRange) contains(port int) bool { return port >= r.First && port <= r.Last }

func (r PortRange) size() int { return r.Last - r.First + 1 }

// reserved returns how many ports at the start of the range are reserved for ports that
// clients choose: a thirty-second of the range, at least 16 and at most 128 (KEP-3668).
func (r PortRange) reserved() int {
	const fewest, most, part = 16, 128, 32
	if r.size() <= fewest {
		return 0
	}
	return min(max(r.size()/part, fewest), most)
}

// portsKey is the key of the stored RangeAllocation of node ports.
const portsKey = "/registry/ranges/servicenodeports"

var (
	errPortTaken  = errors.New("provided port is already allocated")
	errPortsFull  = errors.New("range is full")
	errOtherRange = errors.New("the provided port range does not match the current port range")
	errNoPorts    = errors.New("cannot allocate resources of type servicenodeportallocations at this time")
)

// portSet is the set of allocated ports: bit i is set if the port First+i is allocated.
type portSet struct {
	within PortRange
	bits   big.Int
}

func (p *portSet) has(port int) bool {
	return p.within.contains(port) && p.bits.Bit(port-p.within.First) == 1
}

func (p *portSet) set(port int, taken bool) {
	if !p.within.contains(port) {
		return
	}
	var bit uint
	if taken {
		bit = 1
	}
	p.bits.SetBit(&p.bits, port-p.within.First, bit)
}

// take allocates a port. It returns an error if the port is not free.
func (p *portSet) take(port int) error {
	switch {
	case !p.within.contains(port):
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p.within)
	case p.has(port):
		return errPortTaken
	}
	p.set(port, true)
	return nil
}

// takeAny allocates a free port, preferably not one of the reserved ports.
func (p *portSet) takeAny() (int, error) {
	lower := p.within.reserved()
	for _, part := range []struct{ first, n int }{{lower, p.within.size() - lower}, {0, lower}} {
		if part.n == 0 {
			continue
		}
		for i, start := 0, rand.IntN(part.n); i < part.n; i++ {
			port := p.within.First + part.first + (start+i)%part.n
			if !p.has(port) {
				p.set(port, true)
				return port, nil
			}
		}
	}
	return 0, errPortsFull
}

// envelopeHead is the beginning of the stored value.
var envelopeHead = wire.NewEnvelopeHead("v1", "RangeAllocation")

func (p *portSet) encode() ([]byte, error) {
	return scheme.EncodeEnvelope(envelopeHead, &corev1.RangeAllocation{Range: p.within.String(), Data: p.bits.Bytes()})
}

func decodePorts(value []byte) (*portSet, error) {
	raw, err := wire.Raw(value)
	if err != nil {
		return nil, err
	}
	var a corev1.RangeAllocation
	if err := a.Unmarshal(raw); err != nil {
		return nil, err
	}
	p := &portSet{}
	if p.within, err = ParsePortRange(a.Range); err != nil {
		return nil, err
	}
	p.bits.SetBytes(a.Data)
	return p, nil
}

// A portAllocation has the ports that one write of a Service allocates and releases.
type portAllocation struct {
	ports       *portSet
	entry       storage.Entry
	dryRun      bool
	dryRunPorts []int // allocated by a dry run
	released    []int // released when the write succeeds
	changed     bool
}

// claimPorts begins an allocation. It uses the RangeAllocation of the last conflict, if there is one, and
// otherwise reads the stored one.
func (s *Services) claimPorts(
	ctx context.Context, dryRun bool, conflicts []*storage.ConflictError,
) (*portAllocation, error) {
	c := &portAllocation{dryRun: dryRun}
	var found bool
	if c.entry, found = latestConflict(conflicts, portsKey); !found {
		var err error
		if c.entry, _, err = s.Store.Get(ctx, portsKey, 0); err != nil {
			return nil, err
		}
	}
	if c.entry.ModRevision == 0 {
		return nil, errNoPorts
	}
	var err error
	if c.ports, err = decodePorts(c.entry.Value); err != nil {
		return nil, err
	}
	if c.ports.within != s.NodePorts {
		return nil, errOtherRange
	}
	return c, nil
}

// latestConflict returns the current entry of a key from the last conflict about that key.
func latestConflict(conflicts []*storage.ConflictError, key string) (storage.Entry, bool) {
	for i := len(conflicts) - 1; i >= 0; i-- {
		if conflicts[i].Condition.Key == key {
			return conflicts[i].Current, true
		}
	}
	return storage.Entry{}, false
}

func (a *portAllocation) take(port int) error {
	if a.dryRun {
		// Like in kube-apiserver, a dry run does not check the range.
		if a.ports.has(port) || slices.Contains(a.dryRunPorts, port) {
			return errPortTaken
		}
		a.dryRunPorts = append(a.dryRunPorts, port)
		return nil
	}
	err := a.ports.take(port)
	a.changed = a.changed || err == nil
	return err
}

// dryRunPort is one less than the first port that a dry run shows.
const dryRunPort = 32768

func (a *portAllocation) takeAny() (int, error) {
	if a.dryRun {
		last := 0
		for _, p := range a.dryRunPorts {
			last = max(last, p)
		}
		if len(a.dryRunPorts) == 0 {
			last = dryRunPort
		}
		a.dryRunPorts = append(a.dryRunPorts, last+1)
		return last + 1, nil
	}
	port, err := a.ports.takeAny()
	a.changed = a.changed || err == nil
	return port, err
}

// release marks a port to be released when the write is stored. Until then the port is not free, not even for this
// write.
func (a *portAllocation) release(port int) { a.released = append(a.released, port) }

// sideWrites returns the conditions and operations that the allocation adds to the transaction of the Service.
func (a *portAllocation) sideWrites() (conditions []storage.Condition, ops []storage.Op, err error) {
	if a == nil || a.dryRun {
		return nil, nil, nil
	}
	for _, p := range a.released {
		if a.ports.has(p) {
			a.ports.set(p, false)
			a.changed = true
		}
	}
	if !a.changed {
		return nil, nil, nil
	}
	value, err := a.ports.encode()
	if err != nil {
		return nil, nil, err
	}
	return []storage.Condition{{Key: portsKey, ModRevision: a.entry.ModRevision}},
		[]storage.Op{storage.Put(portsKey, value)}, nil
}
