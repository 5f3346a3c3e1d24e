package config

// Controllers configures the controllers in the server.
type Controllers struct {
	// Names are the controllers of kube-controller-manager that run in the server, in the syntax of its flag --controllers:
	// "*" is all, "name" switches one on, "-name" off, and "-*" is none. The default is all of them, or on a store that
	// others write to (etcd) serviceaccount-controller and resourcequota-controller alone. They pause while a
	// kube-controller-manager runs (--controllers).
	Names []string `flag:"controllers"`
	// NoGarbageCollection means that no garbage collector deletes the dependents of deleted objects: deletions then
	// ignore the propagation policy, and set no finalizers for the garbage collector
	// (--enable-garbage-collector=false).
	NoGarbageCollection bool `flag:"!enable-garbage-collector"`
	// NoDefaultServiceAccounts does not make the service account "default" of each new namespace, which
	// kube-controller-manager does too, where it runs (--default-service-accounts=false).
	NoDefaultServiceAccounts bool `flag:"!default-service-accounts"`
	// NoQuotaUsage does not keep the status of ResourceQuotas (their limits, and what objects use), which
	// kube-controller-manager does too, where it runs (--quota-usage=false).
	NoQuotaUsage bool `flag:"!quota-usage"`
	// NoWorkloadNotices means that a person who creates a workload (with kubectl or Helm) is not told, by a warning and an
	// Event, that there is no sign of a kube-controller-manager or a kube-scheduler
	// (--workload-notices=false).
	NoWorkloadNotices bool `flag:"!workload-notices"`
	// PolicyTypeChecks checks the types in the expressions of ValidatingAdmissionPolicies, and writes what is wrong to
	// their status. It is off by default, because a client that updates a policy right after creating it does not expect
	// that the policy has changed meanwhile. kube-controller-manager does it too, where it runs (--policy-type-checks).
	PolicyTypeChecks bool `flag:"policy-type-checks"`
}
