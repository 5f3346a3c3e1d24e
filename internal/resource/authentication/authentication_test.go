package authentication

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) { kindtest.Run(t, Kinds(), kindtest.Options{}) }
