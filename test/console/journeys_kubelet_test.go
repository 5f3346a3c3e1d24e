package console

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/chromedp/chromedp/kb"
)

// A kubelet plays the part of one: its containers write a log, and run a shell that repeats what is typed.
type kubelet struct {
	lines  chan string // that the followed log gets
	resize chan string // sizes of the terminal
}

// node creates a Node whose kubelet is in this process, and a Pod on it.
func (s *server) node(t testing.TB, name string) *kubelet {
	t.Helper()
	k := &kubelet{lines: make(chan string), resize: make(chan string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/", k.log)
	mux.HandleFunc("/exec/", k.exec)
	h := httptest.NewUnstartedServer(mux)
	h.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	h.StartTLS()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	s.create(t, "/api/v1/nodes", "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
	s.patch(t, "/api/v1/nodes/"+name+"/status", "kubelet", fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],
		"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}},"declaredFeatures":["ExtendWebSocketsToKubelet"]}}`, h.Listener.Addr().(*net.TCPAddr).Port))
	core := s.namespace(t, name)
	s.create(t, core+"/pods", strings.Replace(pod("web", "app: web"), "spec:\n", "spec:\n  nodeName: "+name+"\n", 1))
	s.patch(t, core+"/pods/web/status", "kubelet", `{"status":{"phase":"Running"}}`)
	return k
}

// log sends two lines, the second with an escape sequence of a terminal, and then those that a test gives.
func (k *kubelet) log(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "started with %s\n\x1b[31mred\x1b[0m alert\n", r.URL.RawQuery)
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case line := <-k.lines:
			fmt.Fprintln(w, line)
		case <-r.Context().Done():
			return
		}
	}
}

// exec repeats what is typed until "exit".
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	upgrader := ws.HTTPUpgrader{Protocol: func(p string) bool { return p == "v5.channel.k8s.io" }}
	conn, _, _, err := upgrader.Upgrade(r, w)
	if err != nil {
		return
	}
	defer conn.Close()
	send := func(stream byte, text string) { _ = wsutil.WriteServerBinary(conn, append([]byte{stream}, text...)) }
	send(1, fmt.Sprintf("this is %v\r\n$ ", r.URL.Query()["command"]))
	typed := ""
	for {
		message, err := wsutil.ReadClientBinary(conn)
		if err != nil || len(message) == 0 {
			return
		}
		switch text := string(message[1:]); message[0] {
		case 4:
			k.resize <- text
		case 0:
			if text != "\r" {
				typed += text
				send(1, text)
				continue
			}
			if typed == "exit" {
				send(3, `{"status":"Success"}`)
				_ = wsutil.WriteServerMessage(conn, ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))
				return
			}
			send(1, "\r\nyou said "+typed+"\r\n$ ")
			typed = ""
		}
	}
}

func logs(t *testing.T, s *server, p *page) {
	k := s.node(t, "logs")
	in(s, p)
	p.open("#/o/pods/logs/web")
	p.click("Logs")
	p.sees("started with follow=true&tailLines=1000", "red alert")
	p.until("escape sequences are gone", `!/\u001b|\[31m/.test(document.querySelector('.log').textContent)`)
	for _, line := range []string{"GET /index.html 200", "GET /missing 404"} {
		select {
		case k.lines <- line:
		case <-t.Context().Done():
		}
		p.sees(line)
	}
	p.types("[aria-label='Search the log']", "404")
	p.sees("1 of 4 lines")
	p.misses("index.html")
	p.shot("logs")
	p.types("[aria-label='Search the log']", " ")
	p.click("Times")
	p.sees("timestamps=true")
}

func terminal(t *testing.T, s *server, p *page) {
	k := s.node(t, "terminal")
	in(s, p)
	p.open("#/o/pods/terminal/web")
	p.click("Terminal")
	p.click("Connect")
	p.sees("connected")
	screen := func(text string) {
		p.until("the terminal shows "+text, fmt.Sprintf(`document.querySelector('.xterm-rows')?.innerText.replaceAll('\u00a0', ' ').includes(%q)`, text))
	}
	screen("this is [/bin/sh]")
	if size := <-k.resize; !strings.Contains(size, "Width") {
		t.Errorf("the size is %s", size)
	}
	p.keys("gp?" + kb.Enter) // no keys of the console here
	screen("you said gp?")
	p.shot("terminal")
	p.keys("exit" + kb.Enter)
	p.sees("ended")
}

// noNode asks for the log of a Pod whose node does not answer.
func noNode(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "lost")
	s.create(t, "/api/v1/nodes", "apiVersion: v1\nkind: Node\nmetadata: {name: lost}\n")
	s.patch(t, "/api/v1/nodes/lost/status", "kubelet", `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":1}}}}`)
	s.create(t, core+"/pods", strings.Replace(pod("web", "app: web"), "spec:\n", "spec:\n  nodeName: lost\n", 1))
	in(s, p)
	p.open("#/o/pods/lost/web/logs")
	p.sees("connection refused")
	p.shot("no-node")
	p.open("#/o/pods/lost/web/terminal")
	p.click("Connect")
	p.sees("error dialing backend")
}
