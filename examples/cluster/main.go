// Command cluster runs what makes pods of a Deployment: a Keelson server in this process, and kube-controller-manager,
// kube-scheduler and kwok, which plays the nodes, as programs beside it. `make cluster` builds the three from Go modules
// and starts the command. It ends with the first of them, or at Ctrl-C, and then ends the others.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

// files has the nodes, and how kwok plays them.
//
//go:embed nodes.yaml stages.yaml
var files embed.FS

func main() {
	programs := flag.String("programs", "", "folder of kube-controller-manager, kube-scheduler and kwok; default: the PATH")
	dir := flag.String("data-dir", "cluster-data", "folder for the data, the kubeconfig and the logs of the programs")
	port := flag.Int("port", 6443, "port of the API")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *programs, *dir, *port); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run runs the cluster until ctx ends or a program does.
func run(ctx context.Context, programs, dir string, port int) (err error) {
	conf := config.Default()
	conf.Storage.DataDir, conf.Serving.Port = dir, port
	// The programs are alone: they need no Leases, by which the server would know that they run.
	conf.Controllers = config.Controllers{Names: []string{"-*"}, NoWorkloadNotices: true}
	s, err := keelson.Start(ctx, conf)
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = errors.Join(err, s.Stop(last))
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &cluster{programs: programs, dir: dir, ended: cancel}
	defer c.wait()
	defer cancel(nil)
	if err := c.start(ctx); err != nil {
		return err
	}
	if err := s.LoadFS(ctx, files, "nodes.yaml"); err != nil {
		return err
	}
	fmt.Printf("A cluster with three nodes, which kwok plays. Try:\n  export KUBECONFIG=%s\n"+
		"  kubectl create deployment web --image=nginx --replicas=3\n  kubectl get pods --watch\n", s.KubeconfigPath())
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// cluster is the programs beside the server.
type cluster struct {
	programs, dir string
	ended         func(cause error) // called when a program ends
	running       []chan struct{}
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

func (c *cluster) start(ctx context.Context) error {
	pki := filepath.Join(c.dir, "pki")
	authority, key, accounts := filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"), filepath.Join(pki, "sa.key")
	if err := await(ctx, accounts); err != nil {
		return err
	}
	stages := filepath.Join(c.dir, "stages.yaml")
	content, err := files.ReadFile("stages.yaml")
	if err := errors.Join(err, os.WriteFile(stages, content, 0o600)); err != nil {
		return err
	}
	return errors.Join(
		c.run(ctx, "kube-controller-manager", "--leader-elect=false", "--secure-port=0",
			"--service-account-private-key-file", accounts, "--root-ca-file", authority,
			"--cluster-signing-cert-file", authority, "--cluster-signing-key-file", key),
		c.run(ctx, "kube-scheduler", "--leader-elect=false", "--secure-port=0"),
		c.run(ctx, "kwok", "--config", stages, "--manage-all-nodes", "--node-lease-duration-seconds=5"),
	)
}

// await waits for a file, which the server writes soon after its start.
func await(ctx context.Context, file string) error {
	for range 100 {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("there is no %s after 10 seconds", file)
}

// run starts a program, whose output goes to a file in the data directory.
func (c *cluster) run(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(filepath.Join(c.programs, name))
	if err != nil {
		return fmt.Errorf("%s is needed: %w; `make cluster` builds it", name, err)
	}
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", c.kubeconfig()}, args...)...)
	p.Stdout, p.Stderr = log, log
	p.Cancel = func() error { return p.Process.Signal(os.Interrupt) }
	p.WaitDelay = 10 * time.Second
	if err := p.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	c.running = append(c.running, done)
	go func() {
		defer close(done)
		c.ended(fmt.Errorf("%s has ended (%v): see %s", name, p.Wait(), log.Name()))
	}()
	return nil
}

// wait waits for the end of all programs.
func (c *cluster) wait() {
	for _, done := range c.running {
		<-done
	}
}
