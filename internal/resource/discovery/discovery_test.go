package discovery

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) { kindtest.Run(t, Kinds(features.Gates{}), kindtest.Options{}) }
