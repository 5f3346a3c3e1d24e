package s3

import (
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/keelson-dev/keelson/test/rig"
	"github.com/keelson-dev/keelson/test/takeover"
)

// TestTakeover is the test of that name in test/chaos with a real S3 server.
func TestTakeover(t *testing.T) {
	s := start(t)
	binary, err := takeover.Build(t.TempDir(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(s.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := s.transport(t)
	t.Cleanup(transport.CloseIdleConnections)
	service := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}
	place := takeover.Bucket(t, service, bucketName, "AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey, "AWS_SESSION_TOKEN=")
	takeover.NewPair(t, rig.Seeded(t), binary, place, "--backup-mode", "sync").Rounds(rig.Rounds(2, 50))
}
