// Package metamorphic runs the same random operations in several worlds (stores of
// different kinds and sizes, with caches of different sizes before them or none)
// and demands the same answers in all of them, errors and revisions included.
//
// The worlds take each step together, so the first difference is where they part.
// What must differ is mapped: a revision counts from the world's first, UIDs are
// numbered as they appear, times are left out.
package metamorphic

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/storage"
)

// World is a store, and how it is cached.
type World struct {
	Name string
	// Open returns a store that no other test uses and leaves closing it to
	// t.Cleanup.
	Open func(t *testing.T) storage.Store
	// Reopen closes a store and opens it on the same data; nil leaves it as it is.
	Reopen func(t *testing.T, s storage.Store) storage.Store
	// Cache has the sizes of the API's cache.
	Cache cache.Options
}

// Seed returns the seed of a test, random unless KEELSON_METAMORPHIC_SEED says.
func Seed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(number("KEELSON_METAMORPHIC_SEED", int(time.Now().UnixNano())))
	t.Logf("seed %d (KEELSON_METAMORPHIC_SEED)", seed)
	return seed
}

// Steps returns the length of a test: short, unless KEELSON_METAMORPHIC_STEPS
// says otherwise.
func Steps(short int) int { return number("KEELSON_METAMORPHIC_STEPS", short) }

func number(name string, without int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return without
}

// compare fails the test if the worlds' answers to a step are not the same.
func compare(t *testing.T, step int, what string, names, answers []string) {
	t.Helper()
	for i, a := range answers {
		if a != answers[0] {
			t.Fatalf("step %d: %s\n%s: %s\n%s: %s", step, what, names[0], answers[0], names[i], a)
		}
	}
}

// pick returns one of a list.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

func names(worlds []World) []string {
	out := make([]string, len(worlds))
	for i, w := range worlds {
		out[i] = w.Name
	}
	return out
}

// clip keeps messages readable.
func clip(s string) string {
	const most = 3000
	if len(s) > most {
		return s[:most] + fmt.Sprintf("... (%d bytes)", len(s))
	}
	return strings.TrimSpace(s)
}
