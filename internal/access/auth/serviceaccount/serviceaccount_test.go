package serviceaccount

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/tokencache"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	issuer = "https://kubernetes.default.svc"
	ns     = "apps"
)

// world is the objects of a cluster, and its clock.
type world struct {
	registry.Access
	objects map[string]registry.Object
	now     time.Time
	uses    []Use
	tracked []string
}

func newWorld() *world {
	w := &world{objects: map[string]registry.Object{}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.put(accounts, &corev1.ServiceAccount{ObjectMeta: meta(ns, "robot")})
	w.put(secrets, &corev1.Secret{ObjectMeta: meta(ns, "kept")})
	w.put(nodes, &corev1.Node{ObjectMeta: meta("", "n1")})
	w.put(pods, &corev1.Pod{ObjectMeta: meta(ns, "web"),
		Spec: corev1.PodSpec{ServiceAccountName: "robot", NodeName: "n1"}})
	w.put(pods, &corev1.Pod{ObjectMeta: meta(ns, "lost"),
		Spec: corev1.PodSpec{ServiceAccountName: "robot", NodeName: "gone"}})
	w.put(pods, &corev1.Pod{ObjectMeta: meta(ns, "other"), Spec: corev1.PodSpec{ServiceAccountName: "default"}})
	return w
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}
}

func keyOf(r schema.GroupResource, namespace, name string) string {
	return r.Resource + "/" + namespace + "/" + name
}

func (w *world) put(r schema.GroupResource, o registry.Object) {
	w.objects[keyOf(r, o.GetNamespace(), o.GetName())] = o
}

func (w *world) Get(_ context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error) {
	if o := w.objects[keyOf(r, namespace, name)]; o != nil {
		return o, nil
	}
	return nil, apierr.NotFound(r, name)
}

func (w *world) Lookup(_ context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error) {
	return w.objects[keyOf(r, namespace, name)], nil
}

func (w *world) Life(_ context.Context, r schema.GroupResource, namespace, name string) (registry.Life, error) {
	o := w.objects[keyOf(r, namespace, name)]
	if o == nil {
		return registry.Life{}, nil
	}
	life := registry.Life{UID: string(o.GetUID())}
	if d := o.GetDeletionTimestamp(); d != nil {
		life.Deleted = d.Time
	}
	return life, nil
}

func (w *world) Used(_ context.Context, secret *corev1.Secret) {
	w.tracked = append(w.tracked, secret.Name)
}

func (w *world) clock() time.Time { return w.now }

// writeKey makes a key file and returns its path.
func writeKey(t testing.TB, curve elliptic.Curve) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openKeys(t testing.TB, o KeyOptions) *Keys {
	t.Helper()
	k, err := OpenKeys(o)
	if err == nil {
		err = k.Load(os.ReadFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sign returns the token of claims.
func sign(t testing.TB, keys KeySource, c *claims) string {
	t.Helper()
	payload, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	token, err := keys.Sign(t.Context(), payload)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// withdrawn is a KeySource whose keys can be taken back.
type withdrawn struct {
	KeySource
	generation uint64
	none       bool
}

func (w *withdrawn) Generation() uint64 { return w.generation }

func (w *withdrawn) VerificationKeys(ctx context.Context, id string) []PublicKey {
	if w.none {
		return nil
	}
	return w.KeySource.VerificationKeys(ctx, id)
}

// TestTokenIsInvalidWithoutItsKey checks that a cached signature does not count any more when its key is removed.
func TestTokenIsInvalidWithoutItsKey(t *testing.T) {
	p := newParty(t)
	keys := &withdrawn{KeySource: p.Issuer.Keys}
	p.Authenticator.o.Keys = keys
	token := p.legacy(t, nil)
	for _, step := range []struct {
		none       bool
		generation uint64
		ok         bool
	}{{false, 0, true}, {false, 1, true}, {true, 2, false}} {
		keys.none, keys.generation = step.none, step.generation
		id, err := p.AuthenticateToken(t.Context(), authn.NewBearerToken(token), []string{issuer})
		if ok := id != nil && err == nil; ok != step.ok {
			t.Errorf("%+v: %v %v", step, id, err)
		}
	}
}

// party is an issuer and an authenticator of one world.
type party struct {
	*world
	*Issuer
	*Authenticator
}

func newParty(t testing.TB) *party {
	t.Helper()
	w := newWorld()
	keys := openKeys(t, KeyOptions{SigningFile: writeKey(t, elliptic.P256())})
	return &party{
		world:  w,
		Issuer: &Issuer{Keys: keys, Name: issuer, Audiences: []string{issuer}, Extend: true, Now: w.clock},
		Authenticator: New(Options{
			Keys: keys, Issuers: []string{issuer}, Audiences: []string{issuer}, Objects: w, Lookup: true, Tracker: w,
			Count:  func(u Use) { w.uses = append(w.uses, u) },
			Cached: tokencache.NewMetrics(metrics.New(nil, metrics.Options{})), Now: w.clock,
		}),
	}
}

func (p *party) request(
	ctx context.Context, spec authenticationv1.TokenRequestSpec,
) (*authenticationv1.TokenRequest, error) {
	if spec.ExpirationSeconds == nil {
		hour := int64(3600)
		spec.ExpirationSeconds = &hour
	}
	out, err := p.Issuer.Create(ctx, p.world, registry.CreateRequest{
		Namespace: ns, Name: "robot", Body: &authenticationv1.TokenRequest{Spec: spec},
	})
	if err != nil {
		return nil, err
	}
	return out.(*authenticationv1.TokenRequest), nil
}

func (p *party) token(t testing.TB, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	r, err := p.request(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

func (p *party) who(t testing.TB, token string) (*authn.Identity, error) {
	t.Helper()
	return p.AuthenticateToken(t.Context(), authn.NewBearerToken(token), []string{issuer})
}

func bound(kind, name string) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1",
		Kind: kind, Name: name}}
}

func TestTokenClaims(t *testing.T) {
	p := newParty(t)
	for _, c := range []struct {
		spec  authenticationv1.TokenRequestSpec
		extra map[string][]string
	}{
		{authenticationv1.TokenRequestSpec{}, nil},
		{bound("Secret", "kept"), nil},
		{bound("Node", "n1"), map[string][]string{extraNode: {"n1"}, extraNodeUID: {"uid-of-n1"}}},
		{bound("Pod", "web"),
			map[string][]string{extraPod: {"web"}, extraPodUID: {"uid-of-web"}, extraNode: {"n1"}, extraNodeUID: {"uid-of-n1"}}},
		{bound("Pod", "lost"), map[string][]string{extraPod: {"lost"}, extraPodUID: {"uid-of-lost"}, extraNode: {"gone"}}},
	} {
		identity, err := p.who(t, p.token(t, c.spec))
		if err != nil {
			t.Errorf("%v: %v", c.spec.BoundObjectRef, err)
			continue
		}
		id := identity.User.Extra[extraCredential]
		if len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
			t.Errorf("%v: credential %q", c.spec.BoundObjectRef, id)
		}
		want := &request.User{
			Name: "system:serviceaccount:apps:robot", UID: "uid-of-robot",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:apps", "system:authenticated"},
			Extra:  map[string][]string{extraCredential: id},
		}
		for key, values := range c.extra {
			want.Extra[key] = values
		}
		if !reflect.DeepEqual(identity.User, want) || !slices.Equal(identity.Audiences, []string{issuer}) {
			t.Errorf("%v: %+v %q", c.spec.BoundObjectRef, identity.User, identity.Audiences)
		}
	}
}

// TestAudiencesAreLists checks that the claim aud is a list, also for a single audience.
func TestAudiencesAreLists(t *testing.T) {
	p := newParty(t)
	for _, audiences := range [][]string{{"one"}, {"one", "two"}} {
		_, rest, _ := strings.Cut(p.token(t, authenticationv1.TokenRequestSpec{Audiences: audiences}), ".")
		payload, _, _ := strings.Cut(rest, ".")
		text, err := base64.RawURLEncoding.DecodeString(payload)
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			Audience any `json:"aud"`
		}
		if err := json.Unmarshal(text, &claims); err != nil {
			t.Fatal(err)
		}
		if list, ok := claims.Audience.([]any); !ok || len(list) != len(audiences) || list[0] != "one" {
			t.Errorf("%v: %s", audiences, text)
		}
	}
}

// TestTokenIsInvalidAfterDeletionOfItsObjects deletes, in each case, an object that the token depends on. The token
// must be valid before and invalid afterwards.
func TestTokenIsInvalidAfterDeletionOfItsObjects(t *testing.T) {
	delete := func(r schema.GroupResource, namespace, name string) func(*world) {
		return func(w *world) { delete(w.objects, keyOf(r, namespace, name)) }
	}
	recreate := func(r schema.GroupResource, namespace, name string) func(*world) {
		return func(w *world) { w.objects[keyOf(r, namespace, name)].SetUID("another") }
	}
	going := func(r schema.GroupResource, namespace, name string, since time.Duration) func(*world) {
		return func(w *world) {
			at := metav1.NewTime(w.now.Add(-since))
			w.objects[keyOf(r, namespace, name)].SetDeletionTimestamp(&at)
		}
	}
	for name, c := range map[string]struct {
		spec authenticationv1.TokenRequestSpec
		take func(*world)
		err  string
	}{
		"account deleted": {authenticationv1.TokenRequestSpec{}, delete(accounts, ns, "robot"),
			`serviceaccounts "robot" not found`},
		"account recreated": {authenticationv1.TokenRequestSpec{}, recreate(accounts, ns, "robot"),
			"service account UID (another) does not match claim (uid-of-robot)"},
		"account going": {authenticationv1.TokenRequestSpec{}, going(accounts, ns, "robot", 2*time.Minute),
			"service account apps/robot has been deleted"},
		"account just going": {authenticationv1.TokenRequestSpec{}, going(accounts, ns, "robot", 30*time.Second), ""},
		"secret deleted": {bound("Secret", "kept"), delete(secrets, ns, "kept"),
			"service account token has been invalidated"},
		"secret recreated": {bound("Secret", "kept"), recreate(secrets, ns, "kept"),
			"secret UID (another) does not match service account secret ref claim (uid-of-kept)"},
		"secret going": {bound("Secret", "kept"), going(secrets, ns, "kept", 2*time.Minute),
			"service account token has been invalidated"},
		"pod deleted": {bound("Pod", "web"), delete(pods, ns, "web"), "service account token has been invalidated"},
		"pod recreated": {bound("Pod", "web"), recreate(pods, ns, "web"),
			"pod UID (another) does not match service account pod ref claim (uid-of-web)"},
		"node of a pod": {bound("Pod", "web"), delete(nodes, "", "n1"), ""},
		"node deleted":  {bound("Node", "n1"), delete(nodes, "", "n1"), "service account token has been invalidated"},
		"node recreated": {bound("Node", "n1"), recreate(nodes, "", "n1"),
			"node UID (another) does not match service account node ref claim (uid-of-n1)"},
		"another's end": {bound("Pod", "web"), delete(secrets, ns, "kept"), ""},
		"time": {authenticationv1.TokenRequestSpec{},
			func(w *world) { w.now = w.now.Add(time.Hour + 2*time.Minute) }, "service account token has expired"},
		"time, within leeway": {authenticationv1.TokenRequestSpec{},
			func(w *world) { w.now = w.now.Add(time.Hour + 30*time.Second) }, ""},
		"too early": {authenticationv1.TokenRequestSpec{}, func(w *world) { w.now = w.now.Add(-2 * time.Minute) },
			"service account token is not valid yet"},
	} {
		p := newParty(t)
		token := p.token(t, c.spec)
		if _, err := p.who(t, token); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		c.take(p.world)
		identity, err := p.who(t, token)
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.err != "" && (identity != nil || err == nil || err.Error() != c.err):
			t.Errorf("%s: %v %v, want %s", name, identity, err, c.err)
		}
	}
}

func TestAudiences(t *testing.T) {
	p := newParty(t)
	token := authn.NewBearerToken(p.token(t, authenticationv1.TokenRequestSpec{Audiences: []string{"vault", issuer}}))
	for _, c := range []struct{ asked, meant []string }{
		{[]string{issuer}, []string{issuer}},
		{[]string{"x", issuer, "vault"}, []string{issuer, "vault"}}, // in the order of the request
		{[]string{"x"}, nil},
	} {
		identity, err := p.AuthenticateToken(t.Context(), token, c.asked)
		if (identity == nil) != (c.meant == nil) || identity != nil && !slices.Equal(identity.Audiences, c.meant) {
			t.Errorf("%q: %v %v", c.asked, identity, err)
		}
	}
	_, err := p.AuthenticateToken(t.Context(), token, []string{"x"})
	if want := `token audiences ["vault" "https://kubernetes.default.svc"] is invalid for the target audiences ` +
		`["x"]`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestInvalidTokenRequests(t *testing.T) {
	p := newParty(t)
	seconds := func(n int64) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{ExpirationSeconds: &n}
	}
	wrongUID := bound("Pod", "web")
	wrongUID.BoundObjectRef.UID = "wrong"
	for _, c := range []struct {
		spec authenticationv1.TokenRequestSpec
		code int32
		text string
	}{
		{seconds(599), 422, "may not specify a duration less than 10 minutes"},
		{seconds(1<<32 + 1), 422, "may not specify a duration larger than 2^32 seconds"},
		{bound("ConfigMap", "c"), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"},
		{bound("Pod", ""), 400, "Name parameter required."},
		{bound("Secret", "a/b"), 400, `Name parameter invalid: "a/b": may not contain '/'`},
		{bound("Pod", "none"), 404, `pods "none" not found`},
		{bound("Pod", "other"), 400,
			`cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.`},
		{wrongUID, 409, "the UID in the bound object reference (wrong) does not match the UID in record"},
	} {
		_, err := p.request(t.Context(), c.spec)
		var status kerrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, want %d %s", c.spec, err, c.code, c.text)
		}
	}
}

func TestTokenLifetimeIsLimitedAndExtended(t *testing.T) {
	p := newParty(t)
	mounted := int64(MountedLife / time.Second)
	spec := bound("Pod", "web")
	spec.ExpirationSeconds = &mounted
	token := p.token(t, spec)
	p.now = p.now.Add(2 * time.Hour) // after the requested lifetime
	if _, err := p.who(t, token); err != nil || !slices.Equal(p.uses, []Use{UseStale}) {
		t.Errorf("an extended token: %v %v", err, p.uses)
	}
	spec.Audiences = []string{"vault", issuer} // the other audience may not know of the extension
	elsewhere := p.token(t, spec)
	p.now = p.now.Add(2 * time.Hour)
	if _, err := p.who(t, elsewhere); err == nil {
		t.Error("a token for others is extended")
	}
	p.MaxLife = time.Hour
	ctx, long := request.WithInfo(t.Context(), &request.Info{Warnings: &request.Warnings{}}), int64(7200)
	r, err := p.request(ctx, authenticationv1.TokenRequestSpec{ExpirationSeconds: &long})
	if err != nil || *r.Spec.ExpirationSeconds != 3600 || !r.Status.ExpirationTimestamp.Time.Equal(p.now.Add(time.Hour)) {
		t.Errorf("%+v %v", r, err)
	}
}

// legacy makes the token of a secret.
func (p *party) legacy(t *testing.T, change func(*claims)) string {
	t.Helper()
	c := &claims{legacyClaims: legacyClaims{AccountName: "robot", AccountUID: "uid-of-robot", SecretName: "legacy",
		Namespace: ns}}
	c.Issuer, c.Subject = LegacyIssuer, UserName(ns, "robot")
	if change != nil {
		change(c)
	}
	token := sign(t, p.Keys, c)
	p.put(secrets, &corev1.Secret{ObjectMeta: meta(ns, "legacy"), Data: map[string][]byte{"token": []byte(token)}})
	return token
}

func TestLegacyTokenIsValidWhileItsSecretExists(t *testing.T) {
	p := newParty(t)
	token := p.legacy(t, nil)
	identity, err := p.who(t, token)
	if err != nil || identity.User.Name != "system:serviceaccount:apps:robot" || identity.User.Extra != nil {
		t.Fatalf("%+v %v", identity, err)
	}
	if !slices.Equal(p.uses, []Use{UseWithoutAudience, UseManual}) || !slices.Equal(p.tracked, []string{"legacy"}) {
		t.Errorf("uses %v, tracked %v", p.uses, p.tracked)
	}
	secret := p.objects[keyOf(secrets, ns, "legacy")].(*corev1.Secret)
	secret.Labels = map[string]string{invalidSince: "2026-01-01"}
	if _, err := p.who(t, token); err == nil || !strings.Contains(err.Error(), "has been marked invalid") {
		t.Errorf("a token that was marked invalid: %v", err)
	}
	secret.Labels = nil
	secret.Data["token"] = []byte("another")
	if _, err := p.who(t, token); err == nil || err.Error() != "Token does not match server's copy" {
		t.Errorf("a secret of another token: %v", err)
	}
	delete(p.objects, keyOf(secrets, ns, "legacy"))
	if _, err := p.who(t, token); err == nil || err.Error() != "Token has been invalidated" {
		t.Errorf("a deleted secret: %v", err)
	}
}

func TestTheClaimsOfALegacyTokenAgree(t *testing.T) {
	for want, change := range map[string]func(*claims){
		"sub claim is missing":                func(c *claims) { c.Subject = "" },
		"namespace claim is missing":          func(c *claims) { c.legacyClaims.Namespace = "" },
		"secretName claim is missing":         func(c *claims) { c.SecretName = "" },
		"serviceAccountName claim is missing": func(c *claims) { c.AccountName = "" },
		"serviceAccountUID claim is missing":  func(c *claims) { c.AccountUID = "" },
		"sub claim is invalid": func(c *claims) {
			c.Subject = UserName("kube-system",
				"robot")
		},
		"ServiceAccount UID (uid-of-robot) does not match claim (old)": func(c *claims) { c.AccountUID = "old" },
	} {
		p := newParty(t)
		if _, err := p.who(t, p.legacy(t, change)); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestForgeries(t *testing.T) {
	p := newParty(t)
	token := p.token(t, authenticationv1.TokenRequestSpec{})
	parts := strings.Split(token, ".")
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	other := newParty(t).token(t, authenticationv1.TokenRequestSpec{})
	der, err := x509.MarshalPKIXPublicKey(p.Keys.(*Keys).configured.Load().public[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	// The attacker uses the public key as the secret of a symmetric signature.
	symmetric, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: der}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	signed, err := symmetric.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	hs256, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string]string{
		"no signature":      encode(`{"alg":"none"}`) + "." + parts[1] + ".",
		"symmetric":         hs256,
		"of another key":    other,
		"another payload":   parts[0] + "." + encode(strings.Replace(string(payload), "robot", "admin", -1)) + "." + parts[2],
		"a longer one":      token + "A",
		"without signature": parts[0] + "." + parts[1] + ".",
		"two parts":         parts[0] + "." + parts[1],
		"JSON":              `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"empty":             "",
		"dots":              "..",
	} {
		if identity, _ := p.who(t, forged); identity != nil {
			t.Errorf("%s: %+v", name, identity.User)
		}
	}
	if identity, err := p.who(t, token); identity == nil {
		t.Errorf("the token itself: %v", err)
	}
}

func TestKeysAreRotated(t *testing.T) {
	w := newWorld()
	old, young := writeKey(t, elliptic.P256()), writeKey(t, elliptic.P384())
	before := &Issuer{Keys: openKeys(t, KeyOptions{SigningFile: old}), Name: "https://old", Audiences: []string{issuer},
		Now: w.clock}
	keys := openKeys(t, KeyOptions{Files: []string{old}, SigningFile: young})
	p := &party{world: w, Issuer: before, Authenticator: New(Options{
		Keys: keys, Issuers: []string{issuer, "https://old"}, Audiences: []string{issuer}, Objects: w, Count: func(Use) {},
		Cached: tokencache.NewMetrics(metrics.New(nil, metrics.Options{})), Now: w.clock,
	})}
	if _, err := p.who(t, p.token(t, authenticationv1.TokenRequestSpec{})); err != nil {
		t.Errorf("the old key: %v", err)
	}
	p.Issuer = &Issuer{Keys: keys, Name: issuer, Audiences: []string{issuer}, Now: w.clock}
	if _, err := p.who(t, p.token(t, authenticationv1.TokenRequestSpec{})); err != nil {
		t.Errorf("the new key: %v", err)
	}
	p.Issuer.Name = "https://unknown"
	if identity, _ := p.who(t, p.token(t, authenticationv1.TokenRequestSpec{})); identity != nil {
		t.Error("an issuer that is not accepted")
	}
}

func TestTheFileOfTheOwnKeyIsMadeOnceAndOnlyWhereItIsUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sa.key")
	write := func(path string, content []byte, mode fs.FileMode) error { return os.WriteFile(path, content, mode) }
	ended, end := context.WithCancel(t.Context())
	end()
	k := openKeys(t, KeyOptions{OwnFile: path, WriteFile: write})
	if err := k.EnsureOwnKeyFile(ended); !errors.Is(err, context.Canceled) ||
		len(k.VerificationKeys(t.Context(), "")) != 0 {
		t.Errorf("of a server that stops: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a server that stops wrote: %v", err)
	}
	for range 2 {
		if err := k.EnsureOwnKeyFile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	known := k.VerificationKeys(t.Context(), "")
	if again := openKeys(t, KeyOptions{OwnFile: path}).VerificationKeys(t.Context(), ""); len(known) != 1 ||
		len(again) != 1 || again[0].ID != known[0].ID {
		t.Errorf("%d keys, %d in the file", len(known), len(again))
	}
	other := filepath.Join(t.TempDir(), "sa.key")
	given := openKeys(t, KeyOptions{OwnFile: other, WriteFile: write, SigningFile: path})
	if err := given.EnsureOwnKeyFile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key that nobody uses was kept: %v", err)
	}
}

func TestTheOwnKeyIsMadeWhenItIsNeededAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sa.key")
	write := func(path string, content []byte, mode fs.FileMode) error { return os.WriteFile(path, content, mode) }
	o := KeyOptions{OwnFile: path, WriteFile: write}
	k := openKeys(t, o)
	if len(k.VerificationKeys(t.Context(), "")) != 0 {
		t.Error("a key before it is needed")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there before it is needed: %v", err)
	}
	token := sign(t, k, &claims{})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		t.Fatal(err)
	}
	again := openKeys(t, o)
	known := again.VerificationKeys(t.Context(), signed.Signatures[0].Header.KeyID)
	if len(known) != 1 {
		t.Fatalf("%d keys after a restart", len(known))
	}
	if _, err := signed.Verify(known[0].Key); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(o); err == nil {
		t.Error("a file that is no key")
	}
}

func FuzzAuthenticateToken(f *testing.F) {
	p := newParty(f)
	good := p.token(f, authenticationv1.TokenRequestSpec{})
	f.Add(good)
	f.Add("a.b.c")
	f.Add("e30.eyJpc3MiOiJrdWJlcm5ldGVzL3NlcnZpY2VhY2NvdW50In0.")
	f.Add(`{"payload":"e30"}`)
	f.Fuzz(func(t *testing.T, token string) {
		identity, _ := p.who(t, token)
		if identity == nil {
			return
		}
		// Base64 of the same bytes may be written in more than one way, but the decoded token must be the same.
		if a, b := strings.Split(token, "."), strings.Split(good, "."); len(a) != 3 || a[0] != b[0] || a[1] != b[1] {
			t.Errorf("%q is accepted", token)
		}
	})
}

func BenchmarkAuthenticateToken(b *testing.B) {
	p := newParty(b)
	token := authn.NewBearerToken(p.token(b, bound("Pod", "web")))
	audiences := []string{issuer}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.AuthenticateToken(b.Context(), token, audiences); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAudit(t *testing.T) {
	p := newParty(t)
	noted := func(f func(ctx context.Context)) *audit.Record {
		record := audit.NewRecord(nil, func() {}, "id", p.now)
		f(audit.With(t.Context(), record))
		return record
	}
	use := func(token string) *audit.Record {
		return noted(func(ctx context.Context) {
			_, _ = p.AuthenticateToken(ctx, authn.NewBearerToken(token), []string{issuer}) // some are not valid
		})
	}
	mounted := int64(MountedLife / time.Second)
	spec := bound("Pod", "web")
	spec.ExpirationSeconds = &mounted
	var issued *authenticationv1.TokenRequest
	request := noted(func(ctx context.Context) {
		var err error
		if issued, err = p.request(ctx, spec); err != nil {
			t.Fatal(err)
		}
	})
	identity, err := p.who(t, issued.Status.Token)
	if err != nil {
		t.Fatal(err)
	}
	legacy := p.legacy(t, nil)
	p.now = p.now.Add(MountedLife + 10*time.Second)
	manual := use(legacy)
	p.objects[keyOf(accounts, ns, "robot")].(*corev1.ServiceAccount).Secrets = []corev1.ObjectReference{{Name: "legacy"}}
	automatic := use(legacy)
	p.objects[keyOf(secrets, ns, "legacy")].SetLabels(map[string]string{invalidSince: "2026-01-01"})
	for _, c := range []struct {
		record     *audit.Record
		key, value string
	}{
		{request, issuedCredential, identity.User.Extra[extraCredential][0]},
		{use(issued.Status.Token), "authentication.k8s.io/stale-token",
			"subject: system:serviceaccount:apps:robot, seconds after warning threshold: 10"},
		{manual, "authentication.k8s.io/legacy-token", "system:serviceaccount:apps:robot"},
		{manual, "authentication.k8s.io/legacy-token-manual-secret", "legacy"},
		{automatic, "authentication.k8s.io/legacy-token-autogenerated-secret", "legacy"},
		{use(legacy), "authentication.k8s.io/legacy-token-invalidated", "legacy/apps"},
	} {
		if got, _ := c.record.Annotation(c.key); got != c.value {
			t.Errorf("%s: %q, want %q", c.key, got, c.value)
		}
	}
}
