package encrypt

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// providers contains the transformers and plug-ins of one configuration.
type providers struct {
	resources map[schema.GroupResource]chain
	plugins   []*plugin

	cancel context.CancelFunc // stops the polling of plug-ins
	tasks  sync.WaitGroup
}

var (
	errNoPrefix    = errors.New("no matching prefix found")
	errNoAESKey    = errors.New("no matching key was found for the provided AES transformer")
	errNoSecretKey = errors.New("no matching key was found for the provided Secretbox transformer")
)

// newProviders creates the providers of c. The plug-ins are not called yet. The caller must call close.
func newProviders(c *configuration, log *slog.Logger, metrics *Metrics) (*providers, error) {
	p := &providers{resources: map[schema.GroupResource]chain{}, cancel: func() {}}
	for _, r := range c.Resources {
		var list []prefixed
		for i := range r.Providers {
			t, err := p.newProvider(&r.Providers[i], log, metrics)
			if err != nil {
				p.close()
				return nil, err
			}
			list = append(list, t)
		}
		for _, name := range r.Resources {
			gr := schema.ParseGroupResource(name)
			p.resources[gr] = chain{append(p.resources[gr].list, list...), errNoPrefix, metrics}
		}
	}
	return p, nil
}

// newProvider creates the transformer of one provider.
func (p *providers) newProvider(c *providerConfiguration, log *slog.Logger, metrics *Metrics) (prefixed, error) {
	keys := func(
		prefix string, make func([]byte) (Transformer, error), k *keysConfiguration, none error,
	) (prefixed, error) {
		inner := chain{errNoMatch: none, metrics: metrics}
		for _, key := range k.Keys {
			secret, err := base64.StdEncoding.DecodeString(key.Secret)
			if err != nil {
				return prefixed{}, fmt.Errorf("the secret of key %s is not base64", key.Name)
			}
			t, err := make(secret)
			if err != nil {
				return prefixed{}, fmt.Errorf("key %s: %w", key.Name, err)
			}
			inner.list = append(inner.list, prefixed{key.Name + ":", t})
		}
		return prefixed{prefix, inner}, nil
	}
	switch {
	case c.AESCBC != nil:
		return keys(prefixCBC, newCBC, c.AESCBC, errNoAESKey)
	case c.AESGCM != nil:
		return keys(prefixGCM, newGCM, c.AESGCM, errNoAESKey)
	case c.Secretbox != nil:
		return keys(prefixSecretbox, newSecretbox, c.Secretbox, errNoSecretKey)
	case c.KMS != nil:
		socket, err := c.KMS.socket()
		if err != nil {
			return prefixed{}, err
		}
		plug, err := dialPlugin(c.KMS.Name, socket, c.KMS.Timeout.Duration, log, metrics)
		if err != nil {
			return prefixed{}, err
		}
		p.plugins = append(p.plugins, plug)
		return prefixed{prefixKMSv2 + c.KMS.Name + ":", plug}, nil
	}
	return prefixed{"", Identity}, nil
}

// transformerFor returns the transformer of a resource. If the resource has none, it returns the one of the
// wildcard of its group, then the one of the wildcard of all resources, and otherwise Identity.
func (p *providers) transformerFor(gr schema.GroupResource) Transformer {
	if t, ok := p.resources[gr]; ok {
		return t
	}
	for _, mask := range wildcardsFor(gr) {
		if t, ok := p.resources[mask]; ok {
			return t
		}
	}
	return Identity
}

// prefixesOf returns the prefixes of the stored values that a transformer can read, including the names of the
// keys.
func prefixesOf(t Transformer) (list []string) {
	c, ok := t.(chain)
	if !ok {
		return []string{""} // Identity, or a transformer with one key
	}
	for _, part := range c.list {
		for _, rest := range prefixesOf(part.Transformer) {
			list = append(list, part.prefix+rest)
		}
	}
	return list
}

// pollPlugins polls all plug-ins once, concurrently.
func (p *providers) pollPlugins(ctx context.Context) error {
	errs := make([]error, len(p.plugins))
	var asking sync.WaitGroup
	for i, plug := range p.plugins {
		asking.Go(func() { errs[i] = plug.poll(ctx) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

// start polls the plug-ins in the background until close.
func (p *providers) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	for _, plug := range p.plugins {
		p.tasks.Go(func() { plug.pollUntilDone(ctx) })
	}
}

// close stops the polling and closes the connections to the plug-ins.
func (p *providers) close() {
	p.cancel()
	p.tasks.Wait()
	for _, plug := range p.plugins {
		plug.close()
	}
}
