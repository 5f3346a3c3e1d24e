package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// BenchmarkPodsProxy reads 64 MiB from a pod: directly, through a bare reverse proxy over TLS, and through pods/proxy.
// The metric cpu-ms/GiB is the processor time of the whole process, with client and pod.
func BenchmarkPodsProxy(b *testing.B) {
	const size = 64 << 20
	part := make([]byte, 64<<10)
	c := startCluster(b, nil)
	c.on(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		for range size / len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	pod, err := url.Parse(c.pods.URL)
	if err != nil {
		b.Fatal(err)
	}
	bare := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(pod) }})
	b.Cleanup(bare.Close)
	config := c.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"} // the bare proxy speaks HTTP/1.1 too
	oldHTTP := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	for _, test := range []struct {
		name, url string
		client    *http.Client
	}{
		{"direct", c.pods.URL, http.DefaultClient},
		{"bare", bare.URL, bare.Client()},
		{"pods", c.path("pods/running/proxy/x"), oldHTTP},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), "GET", test.url, nil)
				if err != nil {
					b.Fatal(err)
				}
				w, err := test.client.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, w.Body); n != size || err != nil {
					b.Fatal(n, err)
				}
				_ = w.Body.Close()
			}
			used := processorTime(b) - before
			b.ReportMetric(float64(used.Milliseconds())/float64(b.N)*(1<<30)/size, "cpu-ms/GiB")
		})
	}
}
