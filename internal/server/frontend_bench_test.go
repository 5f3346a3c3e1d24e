package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/config"
)

// BenchmarkTransport measures a GET and a create of 6 KB over one HTTP/2 connection with TLS, for several numbers
// of requests in flight. Client and server share the processors.
func BenchmarkTransport(b *testing.B) {
	conf := testConfig(b)
	conf.Storage.Backend, conf.Storage.DataDir = config.StorageMemory, ""
	s := start(b, conf)
	client := httpClient(b, s, true)
	send := func(method, path, body string, status int) {
		r, err := http.NewRequestWithContext(b.Context(), method, s.URL()+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		w, err := client.Do(r)
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := io.Copy(io.Discard, w.Body); err != nil || w.StatusCode != status {
			b.Error(w.Status, err)
		}
		_ = w.Body.Close()
	}
	const path = "/api/v1/namespaces/default/configmaps"
	object := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"%s":"object-"},"data":{"a":"%s"}}`, name, strings.Repeat("x", 6000))
	}
	send("POST", path, strings.Replace(object("name"), `"object-"`, `"object"`, 1), http.StatusCreated)
	created := object("generateName")
	for _, request := range []struct {
		name string
		send func()
	}{
		{"get", func() { send("GET", path+"/object", "", http.StatusOK) }},
		{"create", func() { send("POST", path, created, http.StatusCreated) }},
	} {
		for _, inFlight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", request.name, inFlight), func(b *testing.B) {
				b.ReportAllocs()
				next := make(chan struct{})
				var clients sync.WaitGroup
				for range inFlight {
					clients.Go(func() {
						for range next {
							request.send()
						}
					})
				}
				for b.Loop() {
					next <- struct{}{}
				}
				close(next)
				clients.Wait()
			})
		}
	}
}
