package certificates

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, Kinds(features.All()),
		kindtest.Options{
			Skip: map[string]string{
				"auth-authn/impersonated-user-recorded-in-csr[2]": "extra of the impersonated user is in headers"}})
}
