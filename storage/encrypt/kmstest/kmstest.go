// Package kmstest is a KMS v2 plug-in for tests: AES-GCM under keys that it makes
// up.
package kmstest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"

	"google.golang.org/grpc"
	kmsv2 "k8s.io/kms/apis/v2"
)

// Plugin is a running plug-in.
type Plugin struct {
	kmsv2.UnimplementedKeyManagementServiceServer

	server *grpc.Server

	mu      sync.Mutex // guards what follows
	key     int        // the current one; its id is "key-N"
	keys    map[string]cipher.AEAD
	health  string
	broken  error
	encrypt int
	decrypt int
	hanging chan struct{} // closed by Resume; nil: calls are answered
	held    int           // calls that wait for Resume, or did so until their caller left
	holds   chan struct{} // closed when held changes
}

const annotation = "version.kmstest.keelson.dev"

// Start serves on a Unix socket. An empty path serves nothing until Serve.
func Start(socket string) (*Plugin, error) {
	p := &Plugin{keys: map[string]cipher.AEAD{}, health: "ok", holds: make(chan struct{})}
	if err := p.Rotate(); err != nil {
		return nil, err
	}
	if socket == "" {
		return p, nil
	}
	return p, p.Serve(socket)
}

// Sibling is another plug-in with the same keys: that of another server.
func (p *Plugin) Sibling() *Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &Plugin{key: p.key, keys: maps.Clone(p.keys), health: "ok", holds: make(chan struct{})}
}

// Serve starts to listen on a Unix socket.
func (p *Plugin) Serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	p.server = grpc.NewServer()
	kmsv2.RegisterKeyManagementServiceServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }() // ends with Stop
	return nil
}

// Stop ends the plug-in; Serve starts it again with the same keys.
func (p *Plugin) Stop() {
	if p.server != nil {
		p.server.Stop()
		p.server = nil
	}
}

// Rotate has the plug-in encrypt with a new key. It still decrypts with the others.
func (p *Plugin) Rotate() error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key++
	p.keys[p.id()] = aead
	return nil
}

func (p *Plugin) id() string { return fmt.Sprintf("key-%d", p.key) }

// SetHealth changes what the status says; "ok" is healthy.
func (p *Plugin) SetHealth(health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = health
}

// Break has every call fail with err; nil mends it.
func (p *Plugin) Break(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = err
}

// Hang has calls wait, until Resume or until their caller gives up.
func (p *Plugin) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging == nil {
		p.hanging = make(chan struct{})
	}
}

// Resume ends Hang: the calls that wait are answered.
func (p *Plugin) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging != nil {
		close(p.hanging)
		p.hanging = nil
	}
}

// Held returns how many calls have been made to hang so far, and a channel that is
// closed when that changes.
func (p *Plugin) Held() (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held, p.holds
}

// enter begins a call: it waits while the plug-in hangs.
func (p *Plugin) enter(ctx context.Context) error {
	p.mu.Lock()
	hanging := p.hanging
	if hanging != nil {
		p.held++
		close(p.holds)
		p.holds = make(chan struct{})
	}
	p.mu.Unlock()
	if hanging == nil {
		return nil
	}
	select {
	case <-hanging:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Calls returns how often the plug-in encrypted and decrypted.
func (p *Plugin) Calls() (encrypt, decrypt int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.encrypt, p.decrypt
}

// Status implements the service.
func (p *Plugin) Status(ctx context.Context, _ *kmsv2.StatusRequest) (*kmsv2.StatusResponse, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return nil, p.broken
	}
	return &kmsv2.StatusResponse{Version: "v2", Healthz: p.health, KeyId: p.id()}, nil
}

// Encrypt implements the service.
func (p *Plugin) Encrypt(ctx context.Context, r *kmsv2.EncryptRequest) (*kmsv2.EncryptResponse, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return nil, p.broken
	}
	if r.Uid == "" {
		return nil, errors.New("no uid")
	}
	p.encrypt++
	aead := p.keys[p.id()]
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return &kmsv2.EncryptResponse{
		Ciphertext: aead.Seal(nonce, nonce, r.Plaintext, nil), KeyId: p.id(),
		Annotations: map[string][]byte{annotation: []byte("1")},
	}, nil
}

// Decrypt implements the service.
func (p *Plugin) Decrypt(ctx context.Context, r *kmsv2.DecryptRequest) (*kmsv2.DecryptResponse, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return nil, p.broken
	}
	aead := p.keys[r.KeyId]
	switch {
	case aead == nil:
		return nil, fmt.Errorf("no key %q", r.KeyId)
	case string(r.Annotations[annotation]) != "1":
		return nil, errors.New("the annotation is missing")
	case len(r.Ciphertext) < aead.NonceSize():
		return nil, errors.New("too short")
	}
	p.decrypt++
	plain, err := aead.Open(nil, r.Ciphertext[:aead.NonceSize()], r.Ciphertext[aead.NonceSize():], nil)
	return &kmsv2.DecryptResponse{Plaintext: plain}, err
}
