package admissionregistration

import (
	"testing"

	"github.com/keelson-dev/keelson/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, Kinds(), kindtest.Options{
		// The reference stores these as the version before, whose protobuf is
		// the same.
		StoredAs: map[string]string{
			"mutatingadmissionpolicies":       "admissionregistration.k8s.io/v1beta1",
			"mutatingadmissionpolicybindings": "admissionregistration.k8s.io/v1beta1",
		},
	})
}
