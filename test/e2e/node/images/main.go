// Command images makes the container images that the conformance suite of Kubernetes and the pods of the node need,
// from programs of this machine, because the node reaches no registry. They have the names that "e2e.test
// --list-images" prints. The output is an OCI image layout in a tar archive.
package main

import (
	"archive/tar"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const (
	registry = "registry.k8s.io/"
	suite    = registry + "e2e-test-images/"
	busybox  = "/bin/busybox"
)

func main() {
	var b builder
	flag.StringVar(&b.programs, "programs", "", "folder of the programs that the Makefile builds")
	flag.StringVar(&b.kubernetes, "kubernetes", "", "folder of the module k8s.io/kubernetes")
	flag.StringVar(&b.debian, "debian", "", "folder with the extracted packages nginx, netcat-openbsd and iperf")
	output := flag.String("o", "images.tar", "file to write")
	flag.Parse()
	if err := b.build(*output); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

type builder struct {
	programs, kubernetes, debian string
	archive                      *archive
	err                          error
}

// build writes the file only if all images could be made.
func (b *builder) build(output string) error {
	file, err := os.CreateTemp(filepath.Dir(output), "images-*.tar")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	b.archive = newArchive(file)
	b.images()
	if b.err != nil {
		return b.err
	}
	if err := b.archive.close(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), output)
}

// layer returns the bytes of the layer that fill fills.
func (b *builder) layer(fill func(*layer)) []byte {
	l := newLayer()
	fill(l)
	content, err := l.close()
	if b.err == nil {
		b.err = err
	}
	return content
}

func (b *builder) built(name string) string { return filepath.Join(b.programs, name) }

func (b *builder) images() {
	shell := b.layer(func(l *layer) {
		system(l, "", "")
		l.applets()
	})
	b.archive.image([]string{suite + "busybox:1.37.0-2", suite + "busybox:1.36.1-1"}, config{Cmd: []string{"sh"}}, shell)
	b.archive.image([]string{suite + "nonroot:1.5"}, config{User: "1234", Cmd: []string{"sh"}}, shell)
	pause := b.layer(func(l *layer) { l.file("pause", b.built("node/pause"), 0o755) })
	b.archive.image([]string{registry + "pause:3.10.2"},
		config{Entrypoint: []string{"/pause"}, User: "65535:65535"}, pause)
	nnp := b.layer(func(l *layer) { l.file("usr/local/bin/nnp", b.built("node/nonewprivs"), 0o6755) })
	b.archive.image([]string{suite + "nonewprivs:1.4"}, config{Cmd: []string{"nnp"}}, shell, nnp)
	etcd := b.layer(func(l *layer) { l.program("usr/local/bin/etcd", b.built("etcd")) })
	b.archive.image([]string{registry + "etcd:3.7.0-0"}, config{
		Cmd: []string{"/usr/local/bin/etcd"}, ExposedPorts: tcp("2379", "2380"),
	}, shell, etcd)
	sample := b.layer(func(l *layer) { l.program("sample-apiserver", b.built("sample-apiserver")) })
	b.archive.image([]string{suite + "sample-apiserver:1.29.2"},
		config{Entrypoint: []string{"/sample-apiserver"}}, shell, sample)
	metrics := b.layer(func(l *layer) { l.program("metrics-server", b.built("metrics-server")) })
	b.archive.image([]string{registry + "metrics-server/metrics-server:v0.9.0"},
		config{Entrypoint: []string{"/metrics-server"}}, shell, metrics)
	b.agnhost()
	b.nginx()
	perl := b.layer(func(l *layer) {
		system(l, "", "")
		l.program("usr/bin/perl", "/usr/bin/perl")
		l.link("usr/local/bin/perl", "/usr/bin/perl")
		l.tree("/usr/lib/x86_64-linux-gnu/perl-base")
		l.applets()
	})
	b.archive.image([]string{suite + "perl:5.26"}, config{Cmd: []string{"perl"}}, perl)
}

// agnhost makes the image of the program that most specs run, and those that are made like it.
func (b *builder) agnhost() {
	tools := b.layer(func(l *layer) {
		system(l, "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n",
			"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
		for _, tool := range []string{"curl", "dig", "host", "nslookup", "getent", "ss"} {
			l.program("usr/bin/"+tool, "/usr/bin/"+tool)
		}
		l.program("sbin/ip", "/sbin/ip")
		l.program("bin/nc", filepath.Join(b.debian, "bin/nc.openbsd"))
		l.program("usr/local/bin/iperf", filepath.Join(b.debian, "usr/bin/iperf"))
		l.link("usr/bin/iperf", "/usr/local/bin/iperf")
		l.applets()
	})
	source := filepath.Join(b.kubernetes, "test/images")
	programs := b.layer(func(l *layer) {
		l.file("agnhost", b.built("node/agnhost"), 0o755)
		l.link("agnhost-2", "agnhost")
		l.folder("uploads", 0o755)
		l.file("localhost.crt", filepath.Join(source, "agnhost/porter/localhost.crt"), 0o644)
		l.file("localhost.key", filepath.Join(source, "agnhost/porter/localhost.key"), 0o644)
		l.file("coredns", b.built("node/coredns"), 0o755)
	})
	ports := tcp("80", "8080", "8081", "9376", "5000")
	c := config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, ExposedPorts: ports}
	b.archive.image([]string{suite + "agnhost:2.55", suite + "agnhost:2.66.1"}, c, tools, programs)
	b.archive.image([]string{suite + "glibc-dns-testing:2.1.1"}, config{Cmd: []string{"bash"}}, tools, programs)
	for _, name := range []string{"nautilus", "kitten"} {
		pages := b.layer(func(l *layer) {
			files, err := filepath.Glob(filepath.Join(source, name, "html/*"))
			if err != nil || len(files) == 0 {
				l.fail(fmt.Errorf("no pages of %s in %s: %v", name, source, err))
			}
			for _, file := range files {
				l.file(filepath.Base(file), file, 0o644)
			}
		})
		web := c
		web.Cmd = []string{"test-webserver"}
		b.archive.image([]string{suite + name + ":1.8"}, web, tools, programs, pages)
	}
}

const nginxConfiguration = `user root;
worker_processes 1;
pid /run/nginx.pid;
error_log /dev/stderr notice;
events { worker_connections 256; }
http {
  default_type text/html;
  access_log /dev/stdout;
  server {
    listen 80;
    listen [::]:80;
    server_name localhost;
    location / { root /usr/share/nginx/html; index index.html; }
  }
}
`

// nginxPage has the title that the specs look for.
const nginxPage = `<!DOCTYPE html>
<html>
<head><title>Welcome to nginx!</title></head>
<body><h1>Welcome to nginx!</h1></body>
</html>
`

func (b *builder) nginx() {
	server := b.layer(func(l *layer) {
		system(l, "nginx:x:101:101:nginx:/nonexistent:/bin/false\n", "nginx:x:101:\n")
		l.program("usr/sbin/nginx", filepath.Join(b.debian, "usr/sbin/nginx"))
		l.program("usr/bin/curl", "/usr/bin/curl")
		l.text("etc/nginx/nginx.conf", nginxConfiguration)
		l.text("usr/share/nginx/html/index.html", nginxPage)
		l.text("usr/share/nginx/html/50x.html", "<html><body>error</body></html>\n")
		l.folders("var/lib/nginx", "var/log/nginx")
		l.link("var/log/nginx/error.log", "/dev/stderr")
		l.link("var/log/nginx/access.log", "/dev/stdout")
		l.applets()
	})
	b.archive.image([]string{suite + "nginx:1.28.0-2", suite + "nginx:1.27.0-2"}, config{
		Cmd: []string{"nginx", "-g", "daemon off;"}, ExposedPorts: tcp("80"), StopSignal: "SIGQUIT",
	}, server)
}

func tcp(ports ...string) map[string]struct{} {
	exposed := map[string]struct{}{}
	for _, port := range ports {
		exposed[port+"/tcp"] = struct{}{}
	}
	return exposed
}

// system adds what every image has: folders, users, busybox, and bash as sh. The sh of busybox is not used because it
// prefers its own applets to programs in PATH, and does not pass on variables whose names have a hyphen.
func system(l *layer, users, groups string) {
	l.folders("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/lib", "usr/share", "etc", "root", "home",
		"var/log", "var/run", "lib", "lib64", "proc", "sys", "dev", "run", "mnt", "opt")
	for _, name := range []string{"tmp", "var/tmp"} {
		l.add(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o1777}, nil)
	}
	l.file("bin/busybox", busybox, 0o755)
	l.program("bin/bash", "/bin/bash")
	l.link("bin/sh", "bash")
	l.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n"+
		"bin:x:2:2:bin:/bin:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n"+users)
	l.text("etc/group", "root:x:0:\ndaemon:x:1:\nbin:x:2:\ntty:x:5:\nnogroup:x:65534:\n"+groups)
	l.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
	l.text("etc/os-release", "ID=keelson-e2e\n")
}
