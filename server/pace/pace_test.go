package pace

import "testing"

func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: mostPercent, 1 << 20: mostPercent, 16 << 20: 225, 48 << 20: 75, 96 << 20: 37, 1 << 30: leastPercent,
	} {
		if got := percent(live); got != want {
			t.Errorf("%d MiB live: %d %%, want %d", live>>20, got, want)
		}
	}
}
