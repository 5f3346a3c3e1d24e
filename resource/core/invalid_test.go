package core

import (
	"testing"

	"github.com/keelson-dev/keelson/resource/internal/kindtest"
)

func TestInvalid(t *testing.T) {
	kindtest.Invalid(t, Kinds())
	kindtest.InvalidUpdates(t, Kinds())
}

func TestCases(t *testing.T) { kindtest.Cases(t, Kinds()) }
