package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// etcd is a cluster of one member for one server.
type etcd struct {
	cmd *exec.Cmd
	url string
}

// etcdQuota is the size up to which the member accepts writes, in bytes: enough for the rows of scale.
const etcdQuota = 16 << 30

// startEtcd starts a member on empty data and waits until it listens.
func startEtcd(binary, dir string, log *os.File) (*etcd, error) {
	if binary == "" {
		return nil, errors.New("{etcd} needs --etcd")
	}
	client, err := freePort()
	if err != nil {
		return nil, err
	}
	peer, err := freePort()
	if err != nil {
		return nil, err
	}
	e := &etcd{url: "http://127.0.0.1:" + client}
	peerURL := "http://127.0.0.1:" + peer
	e.cmd = exec.Command(binary, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", e.url,
		"--advertise-client-urls", e.url,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster", "default="+peerURL,
		"--quota-backend-bytes", strconv.Itoa(etcdQuota))
	e.cmd.Stdout, e.cmd.Stderr = log, log
	ownGroup(e.cmd)
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(startLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if nc, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", client)); err == nil {
			return e, nc.Close()
		}
	}
	e.stop()
	return nil, errors.New("etcd does not listen")
}

func (e *etcd) stop() {
	_ = killGroup(e.cmd) // its data is deleted
	_ = e.cmd.Wait()     // returns an error because the process was killed
}

// writeKey writes a key that signs service account tokens, which kube-apiserver requires.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
