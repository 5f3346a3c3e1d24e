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
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// algorithms are those of the keys that tokens are signed with.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// ownKeyBits is the size of the key that a server makes for itself. It is RSA
// because every relying party of OpenID Connect knows RS256, and 2048 bits as
// kubeadm makes it.
const ownKeyBits = 2048

func newPublicKey(key crypto.PublicKey) (PublicKey, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, err
	}
	// The ID tells nothing about the key but which one it is.
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

// Keys are those of files, and the server's own. They are a KeySource.
//
// Where no key is given the server has one of its own. Making it takes 50 ms or more
// of a core, so nobody waits for it: a server with a data directory makes it beside
// its first requests, because other programs sign with its file; one in memory when
// it is first needed.
type Keys struct {
	given  []PublicKey
	signer crypto.Signer // nil: the own key signs

	ownPath string // "" keeps the own key in memory
	write   func(path string, content []byte, mode fs.FileMode) error

	mu  sync.Mutex // guards own
	own *ownKey
}

type ownKey struct {
	signer crypto.Signer
	public PublicKey
}

// KeyOptions say where keys are.
type KeyOptions struct {
	// Files hold PEM keys, public or private, that tokens are verified with.
	Files []string
	// SigningFile holds the private key that signs; "" is the server's own.
	SigningFile string
	// OwnFile is where the server's own key is kept; "" keeps it in memory.
	OwnFile string
	// WriteFile replaces a file as a whole.
	WriteFile func(path string, content []byte, mode fs.FileMode) error
}

// OpenKeys reads the keys that there are.
func OpenKeys(o KeyOptions) (*Keys, error) {
	k := &Keys{ownPath: o.OwnFile, write: o.WriteFile}
	for _, file := range o.Files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		keys, err := parsePublicKeys(content)
		if err != nil {
			return nil, fmt.Errorf("error reading public key file %s: %w", file, err)
		}
		if err := k.add(keys...); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if o.SigningFile != "" {
		signer, err := readPrivateKey(o.SigningFile)
		if err != nil {
			return nil, fmt.Errorf("failed to parse service-account-issuer-key-file: %w", err)
		}
		k.signer = signer
		return k, k.add(signer.Public())
	}
	return k, k.readOwn()
}

// add makes keys count, each once.
func (k *Keys) add(keys ...crypto.PublicKey) error {
	for _, key := range keys {
		public, err := newPublicKey(key)
		if err != nil {
			return err
		}
		known := false
		for _, other := range k.given {
			known = known || other.ID == public.ID
		}
		if !known {
			k.given = append(k.given, public)
		}
	}
	return nil
}

// readOwn reads the own key if it was made before.
func (k *Keys) readOwn() error {
	if k.ownPath == "" {
		return nil
	}
	signer, err := readPrivateKey(k.ownPath)
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

// Known implements KeySource. An own key that was not made yet has signed nothing.
func (k *Keys) Known(_ context.Context, id string) []PublicKey {
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own == nil {
		return k.given
	}
	return append(k.given[:len(k.given):len(k.given)], k.own.public)
}

// signing returns the key that signs.
func (k *Keys) signing() (crypto.Signer, PublicKey, error) {
	if k.signer != nil {
		public, err := newPublicKey(k.signer.Public())
		return k.signer, public, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own == nil {
		if err := k.makeOwn(context.Background()); err != nil {
			return nil, PublicKey{}, fmt.Errorf("cannot make a key for service account tokens: %w", err)
		}
	}
	return k.own.signer, k.own.public, nil
}

// KeepOwn makes the file of the own key, unless it is there, another key signs, or
// ctx ends before.
func (k *Keys) KeepOwn(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.signer != nil || k.own != nil || k.ownPath == "" {
		return nil
	}
	return k.makeOwn(ctx)
}

// makeOwn makes the own key and keeps it: a token must not outlive it.
func (k *Keys) makeOwn(ctx context.Context) error {
	key, err := rsa.GenerateKey(rand.Reader, ownKeyBits)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	if k.ownPath != "" {
		block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
		const ownerOnly = 0o600
		if err := k.write(k.ownPath, pem.EncodeToMemory(block), ownerOnly); err != nil {
			return err
		}
	}
	return k.setOwn(key)
}

// Published implements KeySource.
func (k *Keys) Published() ([]PublicKey, time.Duration, error) {
	if _, _, err := k.signing(); err != nil {
		return nil, 0, err
	}
	return k.all(), publishedAge, nil
}

// Generation implements KeySource: keys of files are never withdrawn.
func (k *Keys) Generation() uint64 { return 0 }

// Sign implements KeySource.
func (k *Keys) Sign(_ context.Context, payload []byte) (string, error) {
	key, public, err := k.signing()
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: public.Algorithm, Key: jose.JSONWebKey{Key: key, KeyID: public.ID}}, nil)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

func readPrivateKey(path string) (crypto.Signer, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if key := privateKeyOf(block); key != nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("error reading private key file %s: data does not contain a valid RSA or ECDSA private key", path)
}

// privateKeyOf returns nil for a block of something else.
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

// parsePublicKeys reads the keys of a PEM file: public keys, those of certificates
// and those of private keys.
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
