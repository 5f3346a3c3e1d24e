package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// algorithms are the signature algorithms of service account tokens.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// ownKeyBits is the size of the key that the server generates. It is an RSA key because every
// relying party of OpenID Connect supports RS256, and has 2048 bits like kubeadm's.
const ownKeyBits = 2048

func newPublicKey(key crypto.PublicKey) (PublicKey, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, err
	}
	// The ID is a hash, as in kube-apiserver.
	hash := sha256.Sum256(der)
	return NewPublicKey(base64.RawURLEncoding.EncodeToString(hash[:]), key)
}

func algorithmOf(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", errors.New("unknown private key curve, must be 256, 384, or 521")
	}
	return "", fmt.Errorf("unknown public key type %T, must be *rsa.PublicKey or *ecdsa.PublicKey", key)
}

// Keys are the keys from files, and the server's own key. Keys is a KeySource.
//
// Without a configured signing key the server generates its own. That takes 50 ms of CPU time
// or more, so nothing waits for it. A server with a data directory generates it in the
// background after its start, because other programs sign with the file; a server in memory
// generates it when it is first needed.
type Keys struct {
	o          KeyOptions
	configured atomic.Pointer[configuredKeys]

	mu  sync.Mutex // guards own
	own *ownKey
}

// configuredKeys are the keys of files that are named in options. They are immutable.
type configuredKeys struct {
	public     []PublicKey
	signer     crypto.Signer // nil: the own key signs
	generation uint64        // increases when a key is withdrawn
}

type ownKey struct {
	signer crypto.Signer
	public PublicKey
}

// KeyOptions configure the sources of keys.
type KeyOptions struct {
	// Files are PEM files with public or private keys to verify tokens with.
	Files []string
	// SigningFile is a PEM file with the signing key; "" stands for the server's own key.
	SigningFile string
	// OwnFile is the file of the server's own key; "" keeps it only in memory.
	OwnFile string
	// ReadFile reads OwnFile; nil is os.ReadFile.
	ReadFile func(path string) ([]byte, error)
	// WriteFile writes a file atomically.
	WriteFile func(path string, content []byte, mode fs.FileMode) error
}

// OpenKeys reads the server's own key, if its file exists. Load reads the others before the first request.
func OpenKeys(o KeyOptions) (*Keys, error) {
	if o.ReadFile == nil {
		o.ReadFile = os.ReadFile
	}
	k := &Keys{o: o}
	k.configured.Store(&configuredKeys{})
	if o.SigningFile != "" {
		return k, nil
	}
	return k, k.readOwn()
}

// Load reads the files in KeyOptions.Files and SigningFile with read, as os.ReadFile does. Tokens that are made later are
// signed with the key that it reads. If a key is withdrawn, its tokens are refused from then on. After an error all keys
// are as before. Load must not be called concurrently.
func (k *Keys) Load(read func(path string) ([]byte, error)) error {
	next := &configuredKeys{}
	for _, file := range k.o.Files {
		content, err := read(file)
		if err != nil {
			return err
		}
		keys, err := parsePublicKeys(content)
		if err != nil {
			return fmt.Errorf("error reading public key file %s: %w", file, err)
		}
		if err := next.add(keys...); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if k.o.SigningFile != "" {
		signer, err := readPrivateKey(k.o.SigningFile, read)
		if err != nil {
			return fmt.Errorf("failed to parse service-account-issuer-key-file: %w", err)
		}
		next.signer = signer
		if err := next.add(signer.Public()); err != nil {
			return err
		}
	}
	before := k.configured.Load()
	next.generation = before.generation
	for i := range before.public {
		if !next.has(before.public[i].ID) {
			next.generation++
			break
		}
	}
	k.configured.Store(next)
	return nil
}

// add adds verification keys that are not there yet.
func (c *configuredKeys) add(keys ...crypto.PublicKey) error {
	for _, key := range keys {
		public, err := newPublicKey(key)
		if err != nil {
			return err
		}
		if !c.has(public.ID) {
			c.public = append(c.public, public)
		}
	}
	return nil
}

// has reports whether there is a verification key with an ID.
func (c *configuredKeys) has(id string) bool {
	return slices.ContainsFunc(c.public, func(k PublicKey) bool { return k.ID == id })
}

// readOwn reads the own key from its file, if the file exists.
func (k *Keys) readOwn() error {
	if k.o.OwnFile == "" {
		return nil
	}
	signer, err := readPrivateKey(k.o.OwnFile, k.o.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.setOwn(signer)
}

func (k *Keys) setOwn(signer crypto.Signer) error {
	public, err := newPublicKey(signer.Public())
	if err != nil {
		return err
	}
	k.own = &ownKey{signer, public}
	return nil
}

// VerificationKeys implements KeySource. If the own key is not generated yet, no token was
// signed with it, so it is not needed.
func (k *Keys) VerificationKeys(_ context.Context, id string) []PublicKey {
	all := k.all()
	if id == "" {
		return all
	}
	for i := range all {
		if all[i].ID == id {
			return all[i : i+1]
		}
	}
	return nil
}

func (k *Keys) all() []PublicKey {
	public := k.configured.Load().public
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own == nil {
		return public
	}
	return append(public[:len(public):len(public)], k.own.public)
}

// signingKey returns the key that signs tokens. It generates the own key if that is needed.
func (k *Keys) signingKey() (crypto.Signer, PublicKey, error) {
	if signer := k.configured.Load().signer; signer != nil {
		public, err := newPublicKey(signer.Public())
		return signer, public, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own == nil {
		if err := k.generateOwn(context.Background()); err != nil {
			return nil, PublicKey{}, fmt.Errorf("cannot make a key for service account tokens: %w", err)
		}
	}
	return k.own.signer, k.own.public, nil
}

// EnsureOwnKeyFile generates the own key and writes its file, unless the file exists, another
// key signs, or ctx is done.
func (k *Keys) EnsureOwnKeyFile(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.o.SigningFile != "" || k.own != nil || k.o.OwnFile == "" {
		return nil
	}
	return k.generateOwn(ctx)
}

// generateOwn generates the own key and writes its file before the key is used, because the
// key must exist as long as its tokens do.
func (k *Keys) generateOwn(ctx context.Context) error {
	key, err := rsa.GenerateKey(rand.Reader, ownKeyBits)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	if k.o.OwnFile != "" {
		block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
		const ownerOnly = 0o600
		if err := k.o.WriteFile(k.o.OwnFile, pem.EncodeToMemory(block), ownerOnly); err != nil {
			return err
		}
	}
	return k.setOwn(key)
}

// PublishedKeys implements KeySource.
func (k *Keys) PublishedKeys() ([]PublicKey, time.Duration, error) {
	if _, _, err := k.signingKey(); err != nil {
		return nil, 0, err
	}
	return k.all(), publishedMaxAge, nil
}

// Generation implements KeySource.
func (k *Keys) Generation() uint64 { return k.configured.Load().generation }

// Sign implements KeySource.
func (k *Keys) Sign(_ context.Context, payload []byte) (string, error) {
	key, public, err := k.signingKey()
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: public.Algorithm, Key: jose.JSONWebKey{Key: key, KeyID: public.ID}}, nil)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

func readPrivateKey(path string, read func(string) ([]byte, error)) (crypto.Signer, error) {
	content, err := read(path)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if key := privateKeyOf(block); key != nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("error reading private key file %s: data does not contain a valid RSA or ECDSA private key",
		path)
}

// privateKeyOf returns the private key in a PEM block, nil if the block has none.
func privateKeyOf(block *pem.Block) crypto.Signer {
	switch block.Type {
	case "RSA PRIVATE KEY":
		if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return key
		}
	case "EC PRIVATE KEY":
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key
		}
	case "PRIVATE KEY":
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil
		}
		switch key := key.(type) {
		case *rsa.PrivateKey:
			return key
		case *ecdsa.PrivateKey:
			return key
		}
	}
	return nil
}

// parsePublicKeys returns the public keys in PEM text: public keys, and those of certificates and private keys.
func parsePublicKeys(content []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if private := privateKeyOf(block); private != nil {
			keys = append(keys, private.Public())
			continue
		}
		if public := publicKeyOf(block); public != nil {
			keys = append(keys, public)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("data does not contain any valid RSA or ECDSA public keys")
	}
	return keys, nil
}

func publicKeyOf(block *pem.Block) crypto.PublicKey {
	var key crypto.PublicKey
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	}
	if err != nil {
		return nil
	}
	switch key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return key
	}
	return nil
}
