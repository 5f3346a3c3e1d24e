package apiserverinternal

import (
	"slices"
	"strings"
	"testing"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func TestNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"apps.deployments": true, "example.com.things": true, "deployments": false, ".deployments": false,
		"apps.Deployments": false, "Apps.deployments": false,
	} {
		if messages := validateName(name, false); (len(messages) == 0) != valid {
			t.Errorf("%s: %q", name, messages)
		}
	}
}

// server returns what a server says that encodes in a version and decodes others.
func server(id, encoding string, decodable ...string) internalv1alpha1.ServerStorageVersion {
	return internalv1alpha1.ServerStorageVersion{APIServerID: id, EncodingVersion: encoding, DecodableVersions: decodable}
}

// TestStatus checks the fields of the errors of a status, in their order.
func TestStatus(t *testing.T) {
	type status = internalv1alpha1.StorageVersionStatus
	servers := func(s ...internalv1alpha1.ServerStorageVersion) []internalv1alpha1.ServerStorageVersion { return s }
	served := server("a", "v1", "v1")
	served.ServedVersions = []string{"v1", "v2"}
	condition := internalv1alpha1.StorageVersionCondition{
		Type: "AllEncodingVersionsEqual", Status: "True", Reason: "r", Message: "m",
	}
	for name, c := range map[string]struct {
		status status
		want   string
	}{
		"empty": {status{}, ""},
		"agreement": {status{
			StorageVersions:       servers(server("a", "apps/v1", "apps/v1"), server("b", "apps/v1", "apps/v1")),
			CommonEncodingVersion: ptr.To("apps/v1"), Conditions: []internalv1alpha1.StorageVersionCondition{condition},
		}, ""},
		"no common version": {status{StorageVersions: servers(server("a", "v1", "v1"))}, "status.commonEncodingVersion"},
		"a wrong common version": {
			status{StorageVersions: servers(server("a", "v1", "v1")), CommonEncodingVersion: ptr.To("v2")},
			"status.commonEncodingVersion",
		},
		"a common version without agreement": {
			status{StorageVersions: servers(server("a", "v1", "v1"), server("b", "v2", "v2")), CommonEncodingVersion: ptr.To("v1")},
			"status.commonEncodingVersion",
		},
		"two servers of one name": {
			status{StorageVersions: servers(server("a", "v1", "v1"), server("a", "v1", "v1")), CommonEncodingVersion: ptr.To("v1")},
			"status.storageVersions[1].apiServerID",
		},
		"versions": {
			status{StorageVersions: servers(server("A", "a/b/c", "/v1")), CommonEncodingVersion: ptr.To("a/b/c")},
			"status.storageVersions[0].apiServerID status.storageVersions[0].encodingVersion " +
				"status.storageVersions[0].decodableVersions[0] status.storageVersions[0].decodableVersions",
		},
		"served but not decodable": {
			status{StorageVersions: servers(served), CommonEncodingVersion: ptr.To("v1")},
			"status.storageVersions[0].servedVersions[1]",
		},
		"conditions": {
			status{Conditions: []internalv1alpha1.StorageVersionCondition{condition, {Type: condition.Type, Status: "%"}}},
			"status[1].type status[1].status status[1].reason status[1].message",
		},
	} {
		var got []string
		for _, err := range validateStatus(&c.status, field.NewPath("status")) {
			got = append(got, err.Field)
		}
		if got = slices.Compact(got); strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
