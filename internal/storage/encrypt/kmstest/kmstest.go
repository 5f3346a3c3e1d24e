// Package kmstest is a KMS v2 plug-in for tests. It encrypts with AES-GCM under random keys.
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

	mu          sync.Mutex // guards the fields below
	key         int        // number of the current key; its ID is "key-N"
	keys        map[string]cipher.AEAD
	health      string
	failure     error
	encrypted   int
	decrypted   int
	hanging     chan struct{} // closed by Resume; nil if calls do not hang
	hungCalls   int           // number of calls that waited for Resume so far, or until they were cancelled
	hungChanged chan struct{} // closed when hungCalls changes
}

const annotation = "version.kmstest.keelson.dev"

// Start creates a plug-in that listens on a Unix socket. If the path is empty, it listens only after Serve.
func Start(socket string) (*Plugin, error) {
	p := &Plugin{keys: map[string]cipher.AEAD{}, health: "ok", hungChanged: make(chan struct{})}
	if err := p.Rotate(); err != nil {
		return nil, err
	}
	if socket == "" {
		return p, nil
	}
	return p, p.Serve(socket)
}

// Clone returns another plug-in with the same keys, as if for another server.
func (p *Plugin) Clone() *Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &Plugin{key: p.key, keys: maps.Clone(p.keys), health: "ok", hungChanged: make(chan struct{})}
}

// Serve listens on a Unix socket, in the background.
func (p *Plugin) Serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	p.server = grpc.NewServer()
	kmsv2.RegisterKeyManagementServiceServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }() // returns after Stop
	return nil
}

// Stop stops the plug-in. Serve starts it again with the same keys.
func (p *Plugin) Stop() {
	if p.server != nil {
		p.server.Stop()
		p.server = nil
	}
}

// Rotate creates a new key, with which the plug-in then encrypts. It can still decrypt with the older ones.
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

// SetHealth sets the health in the status; "ok" is healthy.
func (p *Plugin) SetHealth(health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = health
}

// FailWith makes every call fail with err. With nil, calls succeed again.
func (p *Plugin) FailWith(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
}

// Hang makes calls wait until Resume, or until the caller cancels them.
func (p *Plugin) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging == nil {
		p.hanging = make(chan struct{})
	}
}

// Resume ends Hang. The waiting calls are answered.
func (p *Plugin) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging != nil {
		close(p.hanging)
		p.hanging = nil
	}
}

// HungCalls returns how many calls have waited because of Hang so far, and a channel that is closed when the number
// changes.
func (p *Plugin) HungCalls() (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hungCalls, p.hungChanged
}

// waitWhileHanging waits until Resume if the plug-in hangs. Every call begins with it.
func (p *Plugin) waitWhileHanging(ctx context.Context) error {
	p.mu.Lock()
	hanging := p.hanging
	if hanging != nil {
		p.hungCalls++
		close(p.hungChanged)
		p.hungChanged = make(chan struct{})
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
	return p.encrypted, p.decrypted
}

// Status implements the service.
func (p *Plugin) Status(ctx context.Context, _ *kmsv2.StatusRequest) (*kmsv2.StatusResponse, error) {
	if err := p.waitWhileHanging(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return nil, p.failure
	}
	return &kmsv2.StatusResponse{Version: "v2", Healthz: p.health, KeyId: p.id()}, nil
}

// Encrypt implements the service.
func (p *Plugin) Encrypt(ctx context.Context, r *kmsv2.EncryptRequest) (*kmsv2.EncryptResponse, error) {
	if err := p.waitWhileHanging(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return nil, p.failure
	}
	if r.Uid == "" {
		return nil, errors.New("no uid")
	}
	p.encrypted++
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
	if err := p.waitWhileHanging(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return nil, p.failure
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
	p.decrypted++
	plain, err := aead.Open(nil, r.Ciphertext[:aead.NonceSize()], r.Ciphertext[aead.NonceSize():], nil)
	return &kmsv2.DecryptResponse{Plaintext: plain}, err
}
