package console

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

func TestFirstLook(t *testing.T) {
	s := start(t)
	p := browse(t, 1280, 800)
	s.create(t, "/api/v1/namespaces/default/configmaps", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, labels: {app: web}}\ndata: {a: b}\n")
	s.create(t, "/apis/apps/v1/namespaces/default/deployments", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: nginx, image: "nginx:1.27", ports: [{containerPort: 80}], envFrom: [{configMapRef: {name: settings}}]}
`)
	p.logIn(s, token)
	p.sees("Overview")
	p.shot("home")
	p.open("#/r/deployments.apps?ns=default")
	p.sees("web", "live")
	p.shot("list")
	p.open("#/o/deployments.apps/default/web")
	p.sees("Labels", "nginx:1.27")
	p.shot("object")
	for _, tab := range []string{"yaml", "events", "related", "history", "why"} {
		p.open("#/o/deployments.apps/default/web/" + tab)
		p.do("wait", chromedp.Sleep(500*time.Millisecond))
		p.shot(tab)
	}
	for _, view := range []string{"timeline", "access", "definitions", "extensions", "server", "create"} {
		p.open("#/" + view)
		p.do("wait", chromedp.Sleep(700*time.Millisecond))
		p.shot(view)
	}
	p.clean()
}
