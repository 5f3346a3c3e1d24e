package bootstraptoken

import (
	"context"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// one is a cluster with one secret.
type one struct{ secret *corev1.Secret }

func (o one) Lookup(_ context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error) {
	if r.Resource == "secrets" && namespace == o.secret.Namespace && name == o.secret.Name {
		return o.secret, nil
	}
	return nil, nil
}

func newSecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
		Type:       corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			keyID: []byte("abcdef"), keySecret: []byte("0123456789abcdef"), keyUsage: []byte("true"),
			keyGroups: []byte("system:bootstrappers:worker,system:bootstrappers:a"),
		},
	}
}

func TestToken(t *testing.T) {
	const token = "abcdef.0123456789abcdef"
	set := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
	}
	for name, c := range map[string]struct {
		change func(*corev1.Secret)
		token  string
		holds  bool
	}{
		"as it is":           {nil, token, true},
		"not expired":        {set(keyExpiration, "2026-03-01T12:00:01Z"), token, true},
		"expired":            {set(keyExpiration, "2026-03-01T12:00:00Z"), token, false},
		"an end of no form":  {set(keyExpiration, "tomorrow"), token, false},
		"another secret":     {set(keySecret, "0123456789abcdeX"), token, false},
		"an empty secret":    {set(keySecret, ""), "abcdef.", false},
		"another id":         {set(keyID, "abcdeg"), token, false},
		"not for signing in": {set(keyUsage, "false"), token, false},
		"a group of others":  {set(keyGroups, "system:masters"), token, false},
		"another type":       {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, token, false},
		"being deleted":      {func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: noon} }, token, false},
		"another namespace":  {func(s *corev1.Secret) { s.Namespace = "default" }, token, false},
		"another token":      {nil, "abcdef.0123456789abcde0", false},
		"an unknown one":     {nil, "abcdeg.0123456789abcdef", false},
		"upper case":         {nil, "ABCDEF.0123456789abcdef", false},
		"a line more":        {nil, token + "\n", false},
	} {
		secret := newSecret()
		if c.change != nil {
			c.change(secret)
		}
		a := &Authenticator{Objects: one{secret}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Now: func() time.Time { return noon }}
		user, err := a.UserOfToken(t.Context(), authn.NewBearerToken(c.token))
		if err != nil || (user != nil) != c.holds {
			t.Errorf("%s: %+v %v", name, user, err)
		}
		want := &request.User{Name: "system:bootstrap:abcdef", Groups: []string{
			"system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:worker", "system:authenticated",
		}}
		if c.holds && !reflect.DeepEqual(user, want) {
			t.Errorf("%s: %+v", name, user)
		}
	}
}

func TestGroups(t *testing.T) {
	for group, ok := range map[string]bool{
		"system:bootstrappers:a": true, "system:bootstrappers:a:b-c": true, "system:bootstrappers:-a": true,
		"system:bootstrappers:" + strings.Repeat("a", 256): true, "system:bootstrappers:" + strings.Repeat("a", 257): false,
		"system:bootstrappers": false, "system:bootstrappers:": false, "system:bootstrappers:a-": false,
		"system:bootstrappers:A": false,
		"system:masters":         false, "": false, " system:bootstrappers:a": false, "system:bootstrappers:a\n": false,
	} {
		if isAllowedGroup(group) != ok {
			t.Errorf("%.40q: %v", group, !ok)
		}
	}
}

func FuzzToken(f *testing.F) {
	a := &Authenticator{Objects: one{newSecret()}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() time.Time { return noon }}
	const good = "abcdef.0123456789abcdef"
	f.Add(good)
	f.Add("abcdef.")
	f.Fuzz(func(t *testing.T, token string) {
		if user, _ := a.UserOfToken(t.Context(), authn.NewBearerToken(token)); user != nil && token != good {
			t.Errorf("%q is accepted", token)
		}
	})
}
