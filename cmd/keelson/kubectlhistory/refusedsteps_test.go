package kubectlhistory

import (
	"bytes"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/undelete"
)

// TestUndeleteRefusedSteps checks that resources which the server cannot read are an error of the command, and
// that nothing is created in a Namespace that was refused.
func TestUndeleteRefusedSteps(t *testing.T) {
	var out, errOut bytes.Buffer
	s := &session{Options: Options{Out: &out, ErrOut: &errOut}, ctx: t.Context()}
	b := &bringingBack{
		s: s, rep: &report{s: s, yes: true, verb: "created"},
		uids: map[types.UID]types.UID{}, failed: map[string]string{}, pending: map[string]bool{},
	}
	b.carryOut(&undelete.Plan{Steps: []undelete.Step{
		{Version: "v1", Resource: "namespaces", Kind: "Namespace", Name: "shop", UID: "u", Skip: "it cannot be read", Refused: true},
		{
			Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespace: "shop", Name: "a", UID: "a",
			Object: map[string]any{"metadata": map[string]any{"name": "a", "namespace": "shop"}},
		},
	}})
	const want = "namespace/shop refused: it cannot be read\nconfigmap/a skipped: its owner or namespace shop was refused\n"
	if err := b.rep.end(); err == nil || out.String() != want {
		t.Errorf("%v\n%swant\n%s", err, out.String(), want)
	}
}
