package s3

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/bucket/buckettest"
)

const (
	accessKey, secretKey = "test-access", "test-secret"
	bucketName           = "keelson-test"
	// serverDir is a variable of the environment: a process that has it is the server, in that directory.
	serverDir, serverAddress = "KEELSON_TEST_S3_DIR", "KEELSON_TEST_S3_ADDRESS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverDir); dir != "" {
		fmt.Fprintln(os.Stderr, serve(dir, os.Getenv(serverAddress)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve runs the server until it fails or the process is killed.
func serve(dir, address string) error {
	b, err := posix.New(filepath.Join(dir, "data"), meta.XattrMeta{}, posix.PosixOpts{})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the process of the tests, also if that is killed
		os.Exit(0)
	}()
	return embedgw.RunVersityGW(context.Background(), b, &embedgw.Config{
		RootUserAccess: accessKey, RootUserSecret: secretKey, Ports: []string{address}, Quiet: true, KeepAlive: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
		CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
	})
}

// server is a running server with one bucket.
type server struct {
	endpoint, caFile string
	client           *s3.Client
	prefixes         atomic.Int64
}

// start starts a server, which ends with the test.
func start(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "data"), 0o700), certificate(dir)); err != nil {
		t.Fatal(err)
	}
	// The server cannot say on which port it listens, so it gets a port that was free just now.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), serverDir+"="+dir, serverAddress+"="+address)
	process.Stdout, process.Stderr = &output, &output
	input, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = process.Process.Kill()
		_ = process.Wait() // it was killed
		if t.Failed() {
			t.Logf("the server says:\n%s", &output)
		}
	})
	s := &server{endpoint: "https://" + address, caFile: filepath.Join(dir, "cert.pem")}
	t.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	t.Setenv("AWS_SESSION_TOKEN", "")
	s.client = s.newClient(t)
	wait.Seen(t, "the S3 server", func() (bool, string) {
		_, err := s.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucketName)})
		return err == nil, fmt.Sprint(err)
	})
	return s
}

// certificate makes a certificate for 127.0.0.1.
func certificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	write := func(name, kind string, b []byte) error {
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600)
	}
	return errors.Join(write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", secret))
}

// transport returns a transport that trusts the certificate of the server.
func (s *server) transport(t *testing.T) *http.Transport {
	t.Helper()
	content, err := os.ReadFile(s.caFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
}

// newClient returns a client of AWS, for what a Bucket does not do.
func (s *server) newClient(t *testing.T) *s3.Client {
	t.Helper()
	return s3.New(s3.Options{
		BaseEndpoint: &s.endpoint, Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
		HTTPClient:  &http.Client{Transport: s.transport(t)},
	})
}

// open opens the bucket of the server, below a prefix that no other test uses.
func (s *server) open(t *testing.T) bucket.Bucket {
	t.Helper()
	return s.openAt(t, fmt.Sprintf("s3://%s/test-%d/copies", bucketName, s.prefixes.Add(1)))
}

func (s *server) openAt(t *testing.T, url string) bucket.Bucket {
	t.Helper()
	b, closeBucket, err := bucket.Open(t.Context(), url, bucket.Options{Endpoint: s.endpoint, CAFile: s.caFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closeBucket(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestBucket(t *testing.T) {
	s := start(t)
	buckettest.Test(t, s.open)

	// No test may leave parts of an upload.
	uploads, err := s.client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: aws.String(bucketName)})
	if err != nil || len(uploads.Uploads) != 0 {
		t.Errorf("the bucket has the uploads %v (%v)", uploads, err)
	}
}

// TestConditions tests the server, not our code: it must keep both conditions.
func TestConditions(t *testing.T) {
	s := start(t)
	put := func(in s3.PutObjectInput) (etag string, status int) {
		in.Bucket, in.Key, in.Body = aws.String(bucketName), aws.String("object"), strings.NewReader(time.Now().String())
		out, err := s.client.PutObject(t.Context(), &in)
		if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
			return "", r.HTTPStatusCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		return *out.ETag, http.StatusOK
	}
	absent, other, first := aws.String("*"), aws.String(`"x"`), ""
	for _, step := range []struct {
		name string
		in   s3.PutObjectInput
		want int
	}{
		{"If-Match without an object", s3.PutObjectInput{IfMatch: other}, http.StatusNotFound},
		{"If-None-Match without an object", s3.PutObjectInput{IfNoneMatch: absent}, http.StatusOK},
		{"If-None-Match with an object", s3.PutObjectInput{IfNoneMatch: absent}, http.StatusPreconditionFailed},
		{"If-Match with another ETag", s3.PutObjectInput{IfMatch: other}, http.StatusPreconditionFailed},
		{"If-Match", s3.PutObjectInput{IfMatch: &first}, http.StatusOK},
		{"If-Match with an old ETag", s3.PutObjectInput{IfMatch: &first}, http.StatusPreconditionFailed},
	} {
		etag, status := put(step.in)
		if status != step.want {
			t.Errorf("%s: the status is %d, want %d", step.name, status, step.want)
		}
		if first == "" {
			first = etag
		}
	}
}

// TestWithoutPrefix has two buckets of which one is at the top, so it sees the objects of the other one.
func TestWithoutPrefix(t *testing.T) {
	s := start(t)
	top, below := s.openAt(t, "s3://"+bucketName), s.openAt(t, "s3://"+bucketName+"/below/")
	err := below.Put(t.Context(), "a", func(w io.Writer) error { _, err := io.WriteString(w, "1"); return err })
	if err != nil {
		t.Fatal(err)
	}
	if list, err := top.List(t.Context()); err != nil || fmt.Sprint(list) != "[{below/a 1}]" {
		t.Errorf("the bucket has %v (%v)", list, err)
	}
}

// TestErrors has settings that are wrong. The error says which.
func TestErrors(t *testing.T) {
	s := start(t)
	check := func(url string, o bucket.Options, want string) {
		t.Helper()
		b, closeBucket, err := bucket.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.List(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secretKey) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
		if err := closeBucket(); err != nil {
			t.Error(err)
		}
	}
	good := bucket.Options{Endpoint: s.endpoint, CAFile: s.caFile}
	check("s3://no-such-bucket", good, "create it, or correct its name")
	check("s3://"+bucketName, bucket.Options{Endpoint: s.endpoint}, "certificate")
	check("s3://"+bucketName, bucket.Options{Endpoint: s.endpoint, CAFile: s.caFile, Region: "eu-central-1"}, "--backup-s3-region")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey+"x")
	check("s3://"+bucketName, good, "the secret key is wrong")
	t.Setenv("AWS_ACCESS_KEY_ID", "another")
	check("s3://"+bucketName, good, "does not know the access key")
}
