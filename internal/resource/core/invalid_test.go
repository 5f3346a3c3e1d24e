package core

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestInvalid(t *testing.T) {
	kindtest.Invalid(t, Kinds(features.Gates{}))
	kindtest.InvalidUpdates(t, Kinds(features.Gates{}))
}

func TestCases(t *testing.T) { kindtest.Cases(t, Kinds(features.Gates{})) }
