package serviceallocator

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestParsePortRange(t *testing.T) {
	for text, want := range map[string]PortRange{"30000-32767": {30000, 32767}, "80": {80, 80}, "30000+10": {30000, 30010},
		" 1 - 2 ": {1, 2}, "0-65535": {0, 65535}} {
		got, err := ParsePortRange(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
		if again, err := ParsePortRange(got.String()); err != nil || again != got {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
	for _, text := range []string{"", "a", "2-1", "1-65536", "-1", "1-2-3", "1+70000"} {
		if got, err := ParsePortRange(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

// TestStoredPorts checks that the bits are stored as kube-apiserver stores them: as a big-endian number.
func TestStoredPorts(t *testing.T) {
	p := &portSet{within: DefaultNodePorts}
	for _, port := range []int{30000, 30001, 30008, 32767} {
		if err := p.take(port); err != nil {
			t.Fatal(err)
		}
	}
	value, err := p.encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodePorts(value)
	if err != nil {
		t.Fatal(err)
	}
	for port := DefaultNodePorts.First; port <= DefaultNodePorts.Last; port++ {
		if again.has(port) != (port == 30000 || port == 30001 || port == 30008 || port == 32767) {
			t.Errorf("port %d: %v", port, again.has(port))
		}
	}
	// The last byte has the first eight ports.
	if data := again.bits.Bytes(); len(data) != 346 || data[345] != 3 || data[344] != 1 || data[0] != 0x80 {
		t.Errorf("stored as %s", base64.StdEncoding.EncodeToString(data))
	}
}

func TestPortsAreTakenOnce(t *testing.T) {
	p := &portSet{within: PortRange{100, 163}}
	seen := map[int]bool{}
	for i := range p.within.size() {
		port, err := p.takeAny()
		if err != nil || seen[port] || !p.within.contains(port) {
			t.Fatalf("port %d, %v after %d", port, err, i)
		}
		if upper := port >= 100+p.within.reserved(); upper != (i < p.within.size()-p.within.reserved()) {
			t.Errorf("port %d after %d: the upper part comes first", port, i)
		}
		seen[port] = true
	}
	if _, err := p.takeAny(); err != errPortsFull {
		t.Errorf("a full range: %v", err)
	}
	if err := p.take(100); err != errPortTaken {
		t.Errorf("a port that is taken: %v", err)
	}
	if err := p.take(99); err == nil || !strings.Contains(err.Error(), "The range of valid ports is 100-163") {
		t.Errorf("a port of no range: %v", err)
	}
	p.set(120, false)
	if port, err := p.takeAny(); port != 120 || err != nil {
		t.Errorf("%d, %v, want the one that was freed", port, err)
	}
}
