package websocket

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
)

// TestConnectionsToSilentKubeletsEnd has a kubelet that agrees to SPDY and then says nothing more.
func TestConnectionsToSilentKubeletsEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	opened, ended := make(chan struct{}), make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		reader := bufio.NewReader(conn)
		if _, err := http.ReadRequest(reader); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
			"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
		close(opened)
		_, _ = io.Copy(io.Discard, reader)
		close(ended)
	}()
	forwarder := &proxy.Handler{
		Target: proxy.Target{
			URL: &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}, Transport: proxy.NewTransport(proxy.TransportOptions{}),
		},
		UpgradeOnly: true,
		Error:       func(_ http.ResponseWriter, _ *http.Request, err error) { t.Error(err) },
	}
	front := httptest.NewServer(&Translator{Options: Options{Proxy: forwarder}, Stdout: true})
	defer front.Close()
	config, err := websocket.NewConfig(strings.Replace(front.URL, "http", "ws", 1), front.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = []string{"v5.channel.k8s.io"}
	client, err := websocket.DialConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	<-opened
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the connection to the kubelet is open, although the client is gone")
	}
}
