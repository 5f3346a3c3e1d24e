// Package examples has programs and files to start from. Their tests are run with those of the repository.
//
//   - controllertest: a controller and its test, on a server in the test's own process
//   - python: a client that needs nothing but Python
//   - platform: an API for the teams of a platform, without a cluster: a custom resource, roles and a policy
//   - cluster: a server with kube-controller-manager, kube-scheduler and kwok, so that Deployments get pods
package examples
