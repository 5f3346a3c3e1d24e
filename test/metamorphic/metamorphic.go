// Package metamorphic runs the same random operations in several worlds and demands the same results in all of them,
// including errors and revisions. A world is a store of some kind, with or without a cache in front of it.
//
// All worlds carry out each step before the next one begins, so the first difference shows the step that caused it.
// Values that have to differ are normalized: revisions are counted from the first revision of a world, UIDs are
// numbered in the order in which they appear, and times are left out.
package metamorphic

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// World is a store and the configuration of its cache.
type World struct {
	Name string
	// Open returns a store that no other test uses. It registers closing it with t.Cleanup.
	Open func(t *testing.T) storage.Store
	// Reopen closes a store and opens it again on the same data. If Reopen is nil, the store stays open.
	Reopen func(t *testing.T, s storage.Store) storage.Store
	// Cache has the sizes of the cache.
	Cache cache.Options
}

// Seed returns the seed of a test: the value of KEELSON_METAMORPHIC_SEED, or a random one.
func Seed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(number("KEELSON_METAMORPHIC_SEED", int(time.Now().UnixNano())))
	t.Logf("seed %d (KEELSON_METAMORPHIC_SEED)", seed)
	return seed
}

// Steps returns the number of steps of a test: the value of KEELSON_METAMORPHIC_STEPS, or long if KEELSON_LONG is set,
// otherwise short.
func Steps(short, long int) int {
	if os.Getenv("KEELSON_LONG") != "" {
		short = long
	}
	return number("KEELSON_METAMORPHIC_STEPS", short)
}

func number(name string, without int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return without
}

// Difference is the error for the first step with different results.
type Difference struct {
	Step   int
	What   string // the operation
	Worlds [2]string
	Answer [2]string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("step %d: %s\n%s: %s\n%s: %s", d.Step, d.What, d.Worlds[0], d.Answer[0], d.Worlds[1], d.Answer[1])
}

// compare returns a *Difference if the results of a step are not the same in all worlds.
func compare(step int, what string, worlds []World, answers []string) error {
	for i, a := range answers {
		if a != answers[0] {
			return &Difference{step, what, [2]string{worlds[0].Name, worlds[i].Name}, [2]string{answers[0], a}}
		}
	}
	return nil
}

// pick returns a random element of a list.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// clip shortens a text for messages.
func clip(s string) string {
	const most = 3000
	if len(s) > most {
		return s[:most] + fmt.Sprintf("... (%d bytes)", len(s))
	}
	return strings.TrimSpace(s)
}
