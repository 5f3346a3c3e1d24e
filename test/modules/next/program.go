// Command program uses Keelson as a library beside controller-runtime. It is only built: what it does is tested in
// test/e2e.
package main

import (
	"context"
	"fmt"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run starts a server in memory and lists its namespaces.
func run(ctx context.Context) error {
	s, err := keelson.Start(ctx, config.InMemory())
	if err != nil {
		return err
	}
	c, err := client.New(s.RESTConfig(), client.Options{})
	if err != nil {
		return err
	}
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		return err
	}
	fmt.Println(len(namespaces.Items), "namespaces")
	return s.Stop(ctx)
}
