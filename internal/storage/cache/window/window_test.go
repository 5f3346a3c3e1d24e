package window

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// twin is the simple implementation that a Log is compared with: a slice of all events and the number of removed ones.
type twin struct {
	all     []record
	trimmed int
	start   int64
	holes   [][2]int64
}

type record struct {
	revision, size int64
	id             int
}

func (t *twin) live() []record { return t.all[t.trimmed:] }

func (t *twin) bytes() (n int64) {
	for _, r := range t.live() {
		n += r.size
	}
	return n
}

func (t *twin) covers(revision int64) bool {
	for _, h := range t.holes {
		if revision > h[0] && revision < h[1] {
			return false
		}
	}
	return revision >= t.start
}

func (t *twin) after(revision int64) uint64 {
	for i, r := range t.live() {
		if r.revision > revision {
			return uint64(t.trimmed + i)
		}
	}
	return uint64(len(t.all))
}

func play(t *testing.T, script []byte) {
	var log Log[int]
	var slow twin
	revision := int64(10)
	log.Reset(revision)
	slow.start = revision
	for i, b := range script {
		switch b % 8 {
		case 0: // trim
			limit := int64(b) * 4
			var want, got []int
			for slow.bytes() > limit && len(slow.live()) > 0 && slow.live()[0].revision < slow.all[len(slow.all)-1].revision {
				want = append(want, slow.live()[0].id)
				slow.start = slow.live()[0].revision
				slow.trimmed++
			}
			log.Trim(limit, func(position uint64, id int) {
				if slow.all[position].id != id {
					t.Fatalf("dropped %d at %d", id, position)
				}
				got = append(got, id)
			})
			if !slices.Equal(got, want) {
				t.Fatalf("trimmed %v, want %v", got, want)
			}
		case 1: // hole, then an event at its end
			if b > 200 {
				log.AddGap(revision, revision+int64(b%13))
				slow.holes = append(slow.holes, [2]int64{revision, revision + int64(b%13)})
				revision += int64(b % 13)
			}
		case 2: // unload
			if b == 250 {
				before := log.Len()
				log.Clear(func(uint64, int) { before-- })
				if before != 0 || log.Len() != 0 || log.Bytes() != 0 {
					t.Fatalf("Clear left %d events and %d bytes", log.Len(), log.Bytes())
				}
				log.Reset(revision)
				slow.trimmed, slow.start, slow.holes = len(slow.all), revision, nil
			}
		default:
			revision += int64(b>>3) % 4 // 0: the same transaction
			if revision == slow.start {
				revision++
			}
			position := log.Append(revision, int64(b), i)
			if position != uint64(len(slow.all)) {
				t.Fatalf("position %d, want %d", position, len(slow.all))
			}
			slow.all = append(slow.all, record{revision, int64(b), i})
		}
		if log.Bytes() != slow.bytes() || log.Len() != len(slow.live()) || log.Start() != slow.start {
			t.Fatalf(
				"bytes %d len %d start %d, want %d %d %d", log.Bytes(), log.Len(), log.Start(), slow.bytes(), len(slow.live()),
				slow.start,
			)
		}
		for _, r := range []int64{0, slow.start - 1, slow.start, revision - 7, revision - 1, revision, revision + 5} {
			if log.Covers(r) != slow.covers(r) {
				t.Fatalf("Covers(%d) = %v", r, log.Covers(r))
			}
			if log.After(r) != slow.after(r) {
				t.Fatalf("After(%d) = %d, want %d", r, log.After(r), slow.after(r))
			}
		}
	}
	for p := log.First(); p < log.Next(); p++ {
		if r := slow.all[p]; log.Get(p) != r.id || log.Revision(p) != r.revision {
			t.Fatalf("at %d: %d@%d, want %v", p, log.Get(p), log.Revision(p), r)
		}
	}
}

func TestLogAgainstSlice(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		script := make([]byte, 1000)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		play(t, script)
	}
}

func FuzzLog(f *testing.F) {
	f.Add([]byte{3, 3, 11, 11, 8, 201, 19, 250, 3, 0})
	f.Fuzz(func(t *testing.T, script []byte) { play(t, script[:min(len(script), 2000)]) })
}
