package pace

import "testing"

func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: maxPercent, 1 << 20: maxPercent, 16 << 20: 225, 48 << 20: 75, 96 << 20: 37, 1 << 30: minPercent,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d MiB live: %d %%, want %d", live>>20, got, want)
		}
	}
}
