// Package certs creates, stores and renews the server's own certificates: an authority, a serving certificate, the client
// certificate of an administrator, and another authority with the client certificate that the server shows to extension API
// servers. They are created at the first start, and renewed when less than 30 days remain.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	renewBefore  = 30 * 24 * time.Hour
	clockSkew    = 5 * time.Minute // NotBefore is that much in the past, for clients whose clocks are behind

	privateFile = 0o600
	publicFile  = 0o644
	privateDir  = 0o700
)

// Names of the administrator's certificate.
const (
	AdminUser  = "kubernetes-admin"
	AdminGroup = "system:masters"
)

// FrontProxyName is the common name of the certificate that the server shows to extension API servers.
const FrontProxyName = "front-proxy-client"

// Options configure Ensure.
type Options struct {
	// Dir is the directory in which the certificates are stored. With "" they are stored in Memory.
	Dir string
	// Memory has the certificates by name, if Dir is "". With a nil map, each call of Ensure creates new ones.
	Memory map[string]Pair
	// Names and IPs are the names and addresses of the serving certificate.
	Names []string
	IPs   []net.IP
	// Serving is false if the operator provides a serving certificate.
	Serving bool
	// Admin is false if the server accepts no client certificates of its own authority.
	Admin bool
	// FrontProxy is false if the operator configures the trusted front proxies.
	FrontProxy bool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Pair is a certificate with its key, in PEM.
type Pair struct {
	Cert, Key []byte
}

// TLS returns the pair for a TLS configuration.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Set is the server's own certificates.
type Set struct {
	// CA is the certificate of the authority, in PEM. It is empty if neither Options.Serving nor Options.Admin needs it.
	CA []byte
	// Authority signs with the key of CA. It is nil if CA is empty.
	Authority      *Authority
	Serving, Admin Pair
	// FrontProxyCA is the certificate of the authority of front proxies, in PEM, and FrontProxy the certificate by which
	// extension API servers recognize this server. Both are empty without Options.FrontProxy.
	FrontProxyCA []byte
	FrontProxy   Pair
	// NewAuthority is true if the authority was missing and has been made, although Options.Dir has certificates of an earlier
	// one. These, and the kubeconfigs and client certificates that it has signed, are no longer accepted.
	NewAuthority bool
}

// Ensure returns the certificates. It creates those that are missing, expire soon or lack a name of the server.
func Ensure(o Options) (*Set, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dir != "" && (o.Serving || o.Admin || o.FrontProxy) {
		if err := os.MkdirAll(o.Dir, privateDir); err != nil {
			return nil, err
		}
	}
	out := &Set{}
	if o.Serving || o.Admin {
		if err := o.standard(out); err != nil {
			return nil, err
		}
	}
	if o.FrontProxy {
		if err := o.frontProxy(out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// standard adds the authority, the serving certificate and the administrator's.
func (o *Options) standard(out *Set) error {
	had, err := o.read("ca")
	if err != nil {
		return err
	}
	ca, err := o.authority("ca", caName)
	if err != nil {
		return err
	}
	out.CA, out.Authority = ca.pair.Cert, ca
	out.NewAuthority = had == nil && o.exists("apiserver.crt", "admin.crt")
	if o.Serving {
		if out.Serving, err = o.leaf(ca, "apiserver", o.servingTemplate()); err != nil {
			return err
		}
	}
	if o.Admin {
		out.Admin, err = o.leaf(ca, "admin", clientTemplate(AdminUser, AdminGroup))
	}
	return err
}

// frontProxy adds the certificates of the front proxy. It has a CA of its own: otherwise every client could claim to be
// another user.
func (o *Options) frontProxy(out *Set) error {
	ca, err := o.authority("front-proxy-ca", "keelson-front-proxy-ca")
	if err != nil {
		return err
	}
	out.FrontProxyCA = ca.pair.Cert
	out.FrontProxy, err = o.leaf(ca, "front-proxy-client", clientTemplate(FrontProxyName))
	return err
}

// MemberFiles are the paths of the files that Member makes.
type MemberFiles struct{ CA, Cert, Key string }

// Member makes the certificate with which a member of a cluster of servers proves to the others that it is one, and, if it is
// missing, the authority of these certificates, which all members have. Options.Names and IPs are where the others reach the member.
// The certificate is made again if it expires soon, or lacks a name. Options.Dir is set.
func Member(o Options) (f MemberFiles, err error) {
	const authority, name = "members-ca", "member"
	if o.Now == nil {
		o.Now = time.Now
	}
	path := func(file string) string { return filepath.Join(o.Dir, file) }
	f = MemberFiles{CA: path(authority + ".crt"), Cert: path(name + ".crt"), Key: path(name + ".key")}
	if err := os.MkdirAll(o.Dir, privateDir); err != nil {
		return f, err
	}
	ca, err := o.authority(authority, "keelson-members-ca")
	if err != nil {
		return f, err
	}
	_, err = o.leaf(ca, name, &x509.Certificate{
		Subject: pkix.Name{CommonName: "keelson-member"}, DNSNames: o.Names, IPAddresses: o.IPs, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return f, err
}

// OwnServing returns the serving certificate in PEM text that Ensure has made: the certificate, followed by the
// authority that signed it. It returns nil for any other text.
func OwnServing(text []byte) *x509.Certificate {
	var found []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil
		}
		found = append(found, c)
	}
	if len(found) != 2 || found[0].Subject.CommonName != servingName || found[1].Subject.CommonName != caName ||
		found[0].CheckSignatureFrom(found[1]) != nil {
		return nil
	}
	return found[0]
}

// EndsSoon reports whether Ensure would replace a certificate because it expires soon.
func EndsSoon(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Before(now.Add(renewBefore))
}

// Names in the subjects of the authority and of the serving certificate.
const (
	caName      = "keelson-ca"
	servingName = "kube-apiserver"
)

// Authority is a certificate authority with its key.
type Authority struct {
	pair Pair
	cert *x509.Certificate
	key  crypto.Signer
}

// authority returns the stored authority with a file name, or creates it.
func (o *Options) authority(name, commonName string) (*Authority, error) {
	pair, err := o.read(name)
	if err != nil {
		return nil, err
	}
	if pair == nil {
		pair, err = o.issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: commonName}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}, caLifetime, nil)
		if err != nil {
			return nil, err
		}
		if err := o.write(name, pair); err != nil {
			return nil, err
		}
	}
	return o.parse(name, pair)
}

// parse returns the authority of a stored pair.
func (o *Options) parse(name string, pair *Pair) (*Authority, error) {
	parsed, err := pair.TLS()
	if err != nil {
		return nil, o.damaged(name, err)
	}
	key, ok := parsed.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: the key cannot sign", filepath.Join(o.Dir, name+".key"))
	}
	return &Authority{pair: *pair, cert: parsed.Leaf, key: key}, nil
}

func (o *Options) servingTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: servingName}, DNSNames: o.Names, IPAddresses: o.IPs,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

func clientTemplate(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:  pkix.Name{CommonName: user, Organization: groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// leaf returns the stored certificate with that file name if it is usable, or else creates and stores a new one.
func (o *Options) leaf(ca *Authority, name string, template *x509.Certificate) (Pair, error) {
	pair, err := o.read(name)
	if err != nil {
		return Pair{}, err
	}
	if pair != nil && o.usable(*pair, ca, template) {
		return *pair, nil
	}
	if pair, err = o.issue(template, leafLifetime, ca); err != nil {
		return Pair{}, err
	}
	return *pair, o.write(name, pair)
}

// usable reports whether a certificate is signed by the authority, does not expire soon, and has the names of want.
func (o *Options) usable(p Pair, ca *Authority, want *x509.Certificate) bool {
	parsed, err := p.TLS()
	if err != nil {
		return false
	}
	have := parsed.Leaf
	if EndsSoon(have, o.Now()) || have.CheckSignatureFrom(ca.cert) != nil {
		return false
	}
	names := slices.Clone(want.DNSNames)
	for _, ip := range want.IPAddresses {
		names = append(names, ip.String())
	}
	return !slices.ContainsFunc(names, func(name string) bool { return have.VerifyHostname(name) != nil })
}

// issue creates a key and its certificate, signed by ca or, if ca is nil, by itself.
func (o *Options) issue(template *x509.Certificate, lifetime time.Duration, ca *Authority) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	parent, signer := template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	cert, err := sign(template, parent, key.Public(), signer, o.Now(), lifetime)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &Pair{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}, nil
}

// sign returns a certificate of a key, in PEM. The template has its names and usages.
func sign(
	template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer, now time.Time, lifetime time.Duration,
) ([]byte, error) {
	const serialBits = 127
	var err error
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Sign returns a certificate of a key, in PEM. The template has its names and usages. The certificate ends after lifetime, but
// not after the authority.
func (a *Authority) Sign(
	template *x509.Certificate, key crypto.PublicKey, now time.Time, lifetime time.Duration,
) ([]byte, error) {
	return sign(template, a.cert, key, a.key, now, min(lifetime, a.cert.NotAfter.Sub(now)))
}

// Client is a user for whom IssueClient makes a certificate.
type Client struct {
	User     string
	Groups   []string
	Lifetime time.Duration
	Now      time.Time
}

// IssueClient makes a key and a client certificate with the authority that Ensure has stored in a directory. The certificate
// ends after the lifetime, but not after the authority. It changes nothing in the directory.
func IssueClient(dir string, c Client) (Pair, error) {
	o := Options{Dir: dir, Now: func() time.Time { return c.Now }}
	stored, err := o.read("ca")
	if err != nil {
		return Pair{}, err
	}
	if stored == nil {
		return Pair{}, fmt.Errorf("there is no authority in %s; start the server once, which makes it", dir)
	}
	ca, err := o.parse("ca", stored)
	if err != nil {
		return Pair{}, err
	}
	pair, err := o.issue(clientTemplate(c.User, c.Groups...), min(c.Lifetime, ca.cert.NotAfter.Sub(c.Now)), ca)
	if err != nil {
		return Pair{}, err
	}
	return *pair, nil
}

// read returns a stored pair, or nil if there is none.
func (o *Options) read(name string) (*Pair, error) {
	if o.Dir == "" {
		if pair, ok := o.Memory[name]; ok {
			return &pair, nil
		}
		return nil, nil
	}
	cert, err := filewatch.ReadFile(filepath.Join(o.Dir, name+".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := filewatch.ReadFile(filepath.Join(o.Dir, name+".key"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, o.damaged(name, err)
	}
	if err != nil {
		return nil, err
	}
	return &Pair{Cert: cert, Key: key}, nil
}

// exists reports whether the directory has one of the files.
func (o *Options) exists(names ...string) bool {
	return o.Dir != "" && slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(o.Dir, name))
		return err == nil
	})
}

// damaged returns the error of a stored pair that cannot be used. The server does not replace it by itself, because no client
// trusts a new authority.
func (o *Options) damaged(name string, err error) error {
	return fmt.Errorf("%s and %s.key cannot be used: %w; restore both from a backup, or delete both to have the server make "+
		"new ones: certificates and kubeconfigs of a deleted authority are then no longer accepted",
		filepath.Join(o.Dir, name+".crt"), name, err)
}

// write stores a pair. The certificate is written last, because read ignores a key without a certificate: if the
// process stops between the two, the next start creates a new pair.
func (o *Options) write(name string, p *Pair) error {
	if o.Dir == "" {
		if o.Memory != nil {
			o.Memory[name] = *p
		}
		return nil
	}
	if err := WriteFile(filepath.Join(o.Dir, name+".key"), p.Key, privateFile); err != nil {
		return err
	}
	return WriteFile(filepath.Join(o.Dir, name+".crt"), p.Cert, publicFile)
}

// WriteFile replaces a file atomically.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
