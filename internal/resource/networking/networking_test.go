package networking

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, Kinds(features.Gates{}), kindtest.Options{Skip: map[string]string{
		"admission-exclusive/default-ingress-class[1]": "DefaultIngressClass",
		"admission-exclusive/default-ingress-class[2]": "DefaultIngressClass",
		"admission-exclusive/default-ingress-class[6]": "DefaultIngressClass"}})
}
