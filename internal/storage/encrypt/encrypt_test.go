package encrypt

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/storage"
)

var secrets = schema.GroupResource{Resource: "secrets"}

const (
	someKey = "/registry/secrets/ns/name"
	plain   = "k8s\x00secret value"
)

// countingBytes returns the bytes 0, 1, 2, ... n-1.
func countingBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func secretOf(n int) string { return base64.StdEncoding.EncodeToString(countingBytes(n)) }

// secretFrom returns a key of 32 bytes.
func secretFrom(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func unhex(t *testing.T, s string) string {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// entry returns an entry of a configuration. Each provider is YAML in flow style.
func entry(resources string, providers ...string) string {
	return fmt.Sprintf("- resources: [%s]\n  providers:\n  - %s\n", resources, strings.Join(providers, "\n  - "))
}

func document(entries ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" +
		strings.Join(entries, "")
}

func keys(provider string, namesAndSecrets ...string) string {
	var list []string
	for i := 0; i < len(namesAndSecrets); i += 2 {
		list = append(list, fmt.Sprintf("{name: %s, secret: %s}", namesAndSecrets[i], namesAndSecrets[i+1]))
	}
	return fmt.Sprintf("%s: {keys: [%s]}", provider, strings.Join(list, ", "))
}

const identityProvider = "identity: {}"

func open(t *testing.T, text string) *Encryption {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := Open(Options{File: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func mustStore(t *testing.T, e *Encryption, key, value string) string {
	t.Helper()
	out, err := e.Resource(secrets).ToStore(context.Background(), key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func read(e *Encryption, key, value string) (string, bool, error) {
	var out []byte
	var stale bool
	err := storage.RetryPending(context.Background(), func() (err error) {
		out, stale, err = e.Resource(secrets).FromStore(context.Background(), key, []byte(value))
		return err
	})
	return string(out), stale, err
}

func mustRead(t *testing.T, e *Encryption, key, value string, wantStale bool) {
	t.Helper()
	got, stale, err := read(e, key, value)
	if err != nil || got != plain || stale != wantStale {
		t.Fatalf("reads %q, stale %v, error %v; want %q, stale %v", got, stale, err, plain, wantStale)
	}
}

// TestKnownValues decrypts values that other programs have encrypted.
func TestKnownValues(t *testing.T) {
	const nonce = "a0a1a2a3a4a5a6a7a8a9aaab"
	const iv = nonce + "acadaeaf"
	cases := []struct{ name, provider, value, want string }{
		// openssl enc -aes-256-cbc, -aes-128-cbc
		{
			"aescbc 256", keys("aescbc", "key1", secretOf(32)),
			"k8s:enc:aescbc:v1:key1:" + unhex(t, iv+"dca4c55a59eed4806a11af84819f558b77aaddb41741e35375e11db1448d164f"), plain,
		},
		{
			"aescbc 128, a whole block", keys("aescbc", "key1", secretOf(16)),
			"k8s:enc:aescbc:v1:key1:" + unhex(t, iv+"c38f66b3f2c34ae2d9fe685a2542dd8bd02f051672c5893b8a91160781756006"),
			"0123456789abcdef",
		},
		// pyca/cryptography
		{
			"aesgcm", keys("aesgcm", "key1", secretOf(32)),
			"k8s:enc:aesgcm:v1:key1:" + unhex(t, nonce+"8d200f2d36ae61cd0711a7a56616b5bb51bc1931e2e369bc0bde1501e3da6f29"),
			plain,
		},
		// NaCl, tests/secretbox.c
		{"secretbox", keys(
			"secretbox", "key1",
			base64.StdEncoding.EncodeToString([]byte(unhex(t, "1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389"))),
		),
			"k8s:enc:secretbox:v1:key1:" + unhex(t, "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37"+
				"f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"),
			unhex(t, "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705")},
	}
	for _, c := range cases {
		e := open(t, document(entry("secrets", c.provider)))
		got, stale, err := read(e, someKey, c.value)
		if err != nil || got != c.want || stale {
			t.Errorf("%s: reads %q, stale %v, error %v", c.name, got, stale, err)
		}
	}
}

// TestStoredFormat decrypts stored values with the standard library, without the code of this package.
func TestStoredFormat(t *testing.T) {
	body := func(e *Encryption, prefix string) []byte {
		rest, ok := strings.CutPrefix(mustStore(t, e, someKey, plain), prefix)
		if !ok {
			t.Fatalf("does not begin with %s", prefix)
		}
		return []byte(rest)
	}
	block, err := aes.NewCipher(countingBytes(32))
	if err != nil {
		t.Fatal(err)
	}

	b := body(open(t, document(entry("secrets", keys("aescbc", "key1", secretOf(32))))), "k8s:enc:aescbc:v1:key1:")
	text := make([]byte, len(b)-16)
	cipher.NewCBCDecrypter(block, b[:16]).CryptBlocks(text, b[16:])
	if padding := 16 - len(plain)%16; string(text) != plain+strings.Repeat(string(rune(padding)), padding) {
		t.Errorf("aescbc holds %q", text)
	}

	b = body(open(t, document(entry("secrets", keys("aesgcm", "key1", secretOf(32))))), "k8s:enc:aesgcm:v1:key1:")
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = aead.Open(nil, b[:12], b[12:], []byte(someKey)); err != nil || string(text) != plain {
		t.Errorf("aesgcm holds %q, error %v", text, err)
	}
}

// TestSeededEnvelope encrypts an envelope with a derived key by hand and reads it.
func TestSeededEnvelope(t *testing.T) {
	seed, info, nonce := countingBytes(32), bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{9}, 12)
	mac := hmac.New(sha256.New, seed) // HKDF-Expand, RFC 5869: T(1)
	mac.Write(append(bytes.Clone(info), 1))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	data := append(append(bytes.Clone(info), nonce...), aead.Seal(nil, nonce, []byte(plain), []byte(someKey))...)
	var message []byte
	for _, f := range []struct {
		number protowire.Number
		value  []byte
	}{{1, data}, {2, []byte("id")}, {3, []byte("wrapped")}} {
		message = protowire.AppendBytes(protowire.AppendTag(message, f.number, protowire.BytesType), f.value)
	}
	message = protowire.AppendVarint(protowire.AppendTag(message, 5, protowire.VarintType), 1)

	e, err := parseEnvelope(message)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(e.append(nil), message) {
		t.Errorf("written as %x, want %x", e.append(nil), message)
	}
	r, err := e.open(seed)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := r.FromStore(context.Background(), []byte(someKey), e.data)
	if err != nil || string(got) != plain {
		t.Errorf("reads %q, error %v", got, err)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, provider := range []string{
		identityProvider,
		keys("aescbc", "a", secretOf(16)), keys("aescbc", "a", secretOf(24)), keys("aescbc", "a", secretOf(32)),
		keys("aesgcm", "a", secretOf(16)), keys("aesgcm", "a", secretOf(24)), keys("aesgcm", "a", secretOf(32)),
		keys("secretbox", "a", secretOf(32)),
	} {
		e := open(t, document(entry("secrets", provider)))
		for _, n := range []int{0, 1, 15, 16, 17, 31, 32, 1000} {
			want := strings.Repeat("x", n)
			first, second := mustStore(t, e, someKey, want), mustStore(t, e, someKey, want)
			if provider != identityProvider && first == second {
				t.Errorf("%s: the same value twice", provider)
			}
			if got, stale, err := read(e, someKey, first); err != nil || got != want || stale {
				t.Errorf("%s, %d bytes: reads %q, stale %v, error %v", provider, n, got, stale, err)
			}
		}
	}
}

// TestRotation rotates a key: a new key is added, then it becomes the first one, then the old one is removed.
func TestRotation(t *testing.T) {
	for _, provider := range []string{"aescbc", "aesgcm", "secretbox"} {
		old, next := secretFrom("old"), secretFrom("new")
		one := open(t, document(entry("secrets", keys(provider, "k1", old), identityProvider)))
		two := open(t, document(entry("secrets", keys(provider, "k1", old, "k2", next), identityProvider)))
		three := open(t, document(entry("secrets", keys(provider, "k2", next, "k1", old), identityProvider)))
		four := open(t, document(entry("secrets", keys(provider, "k2", next), identityProvider)))
		byOld, byNew := mustStore(t, two, someKey, plain), mustStore(t, three, someKey, plain)
		mustRead(t, one, someKey, byOld, false)
		mustRead(t, two, someKey, byNew, true)
		mustRead(t, three, someKey, byOld, true)
		mustRead(t, three, someKey, byNew, false)
		mustRead(t, four, someKey, byNew, false)
		mustRead(t, four, someKey, plain, true)
		if _, _, err := read(four, someKey, byOld); err == nil {
			t.Errorf("%s: a removed key still reads", provider)
		}
		// The encryption is turned off.
		away := open(t, document(entry("secrets", identityProvider, keys(provider, "k2", next))))
		mustRead(t, away, someKey, byNew, true)
		mustRead(t, away, someKey, plain, false)
		if got := mustStore(t, away, someKey, plain); got != plain {
			t.Errorf("%s: identity stores %q", provider, got)
		}
	}
}

func TestWrongKey(t *testing.T) {
	for provider, want := range map[string]string{
		"aescbc": "invalid padding on input", "aesgcm": "message authentication failed",
		"secretbox": "wrong key or damaged value",
	} {
		value := mustStore(t, open(t, document(entry("secrets", keys(provider, "k1", secretFrom("right"))))), someKey, plain)
		e := open(t, document(entry("secrets", keys(provider, "k1", secretFrom("wrong")), identityProvider)))
		_, _, err := read(e, someKey, value)
		// With AES-CBC, a wrong key results in valid padding in about one of 256 cases.
		if err == nil && provider != "aescbc" || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", provider, err, want)
		}
		e = open(t, document(entry("secrets", keys(provider, "k2", secretFrom("right")))))
		if _, _, err := read(e, someKey, value); err == nil || !strings.Contains(err.Error(), "no matching key was found") {
			t.Errorf("%s: error %v", provider, err)
		}
		// Two providers have a key with this name; only the second one has the right key.
		e = open(
			t, document(entry("secrets", keys(provider, "k1", secretFrom("other")), keys(provider, "k1", secretFrom("right")))),
		)
		if provider != "aescbc" {
			mustRead(t, e, someKey, value, true)
		}
		// The resource is not configured at all.
		e = open(t, document(entry("configmaps", identityProvider)))
		if _, _, err := read(e, someKey, value); err == nil ||
			!strings.Contains(err.Error(), "identity transformer tried to read encrypted data") {
			t.Errorf("%s: error %v", provider, err)
		}
	}
	e := open(t, document(entry("secrets", keys("aesgcm", "k1", secretFrom("right")))))
	if _, _, err := read(e, someKey, plain); err == nil || !strings.Contains(err.Error(), "no matching prefix found") {
		t.Errorf("without identity a plain value reads with error %v", err)
	}
}

// TestTampering changes each byte of a value, and its key in the store.
func TestTampering(t *testing.T) {
	for _, provider := range []string{"aesgcm", "secretbox"} {
		e := open(t, document(entry("secrets", keys(provider, "k1", secretOf(32)))))
		value := mustStore(t, e, someKey, plain)
		for i := range len(value) {
			changed := []byte(value)
			changed[i] ^= 1
			if _, _, err := read(e, someKey, string(changed)); err == nil {
				t.Errorf("%s: byte %d can be changed", provider, i)
			}
			if _, _, err := read(e, someKey, value[:i]); err == nil {
				t.Errorf("%s: can be cut to %d bytes", provider, i)
			}
		}
	}
	e := open(t, document(entry("secrets", keys("aesgcm", "k1", secretOf(32)))))
	value := mustStore(t, e, someKey, plain)
	if _, _, err := read(e, "/registry/secrets/ns/other", value); err == nil {
		t.Error("aesgcm: a value can be copied to another key")
	}
	e = open(t, document(entry("secrets", keys("aescbc", "k1", secretOf(32)))))
	value = mustStore(t, e, someKey, plain)
	for i := range len(value) {
		_, _, _ = read(e, someKey, value[:i]) // must not panic
	}
}

func TestRoot(t *testing.T) {
	e := open(t, document(entry("secrets", keys("aesgcm", "k1", secretOf(32)))))
	value := mustStore(t, e, "/other/secrets/ns/name", plain)
	e.opts.Root = "/other"
	mustRead(t, e, someKey, value, false)
}

// TestResources checks which provider is used for a resource.
func TestResources(t *testing.T) {
	gr := schema.ParseGroupResource
	e := open(t, document(
		entry("secrets, configmaps", keys("aesgcm", "one", secretOf(32))),
		entry("deployments.apps", identityProvider),
		entry("'*.apps'", keys("aesgcm", "two", secretOf(32))),
		entry("'*.'", keys("aesgcm", "three", secretOf(32))),
		entry("'*.*'", keys("aesgcm", "four", secretOf(32))),
	))
	for resource, want := range map[string]string{
		"secrets": "one", "configmaps": "one", "deployments.apps": "", "replicasets.apps": "two",
		"pods": "three", "roles.rbac.authorization.k8s.io": "four", "things.example.com": "four",
	} {
		value, err := e.Resource(gr(resource)).ToStore(context.Background(), someKey, []byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		prefix := "k8s:enc:aesgcm:v1:" + want + ":"
		if want == "" {
			prefix = "k8s\x00"
		}
		if !bytes.HasPrefix(value, []byte(prefix)) {
			t.Errorf("%s begins with %.30q, want %q", resource, value, prefix)
		}
	}
	// A second entry for the same resource adds providers for reading.
	e = open(t, document(entry("secrets", keys("aesgcm", "new", secretOf(32))), entry("secrets", identityProvider)))
	mustRead(t, e, someKey, plain, true)
}

func FuzzFromStore(f *testing.F) {
	for _, prefix := range []string{prefixCBC, prefixGCM, prefixSecretbox} {
		f.Add([]byte(prefix + "a:" + strings.Repeat("0123456789abcdef", 4)))
	}
	text := document(
		entry("secrets", keys("aescbc", "a", secretOf(32)), keys("aesgcm", "a", secretOf(32)),
			keys("secretbox", "a", secretOf(32))),
	)
	c, err := parse([]byte(text))
	if err != nil {
		f.Fatal(err)
	}
	p, err := newProviders(c, nil, NewMetrics(""))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		_, _, _ = p.transformerFor(secrets).FromStore(context.Background(), []byte(someKey), value)
		_, _ = parseEnvelope(value)
	})
}
