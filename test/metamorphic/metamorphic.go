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

// Steps returns the length of a test: short, with KEELSON_LONG long, unless
// KEELSON_METAMORPHIC_STEPS says otherwise.
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

// Difference is where worlds part.
type Difference struct {
	Step   int
	What   string // was asked for
	Worlds [2]string
	Answer [2]string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("step %d: %s\n%s: %s\n%s: %s", d.Step, d.What, d.Worlds[0], d.Answer[0], d.Worlds[1], d.Answer[1])
}

// compare returns a *Difference if the worlds' answers to a step are not the same.
func compare(step int, what string, worlds []World, answers []string) error {
	for i, a := range answers {
		if a != answers[0] {
			return &Difference{step, what, [2]string{worlds[0].Name, worlds[i].Name}, [2]string{answers[0], a}}
		}
	}
	return nil
}

// pick returns one of a list.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// clip keeps messages readable.
func clip(s string) string {
	const most = 3000
	if len(s) > most {
		return s[:most] + fmt.Sprintf("... (%d bytes)", len(s))
	}
	return strings.TrimSpace(s)
}
