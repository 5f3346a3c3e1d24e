package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Every server has the flow schemas and priority levels "exempt" and "catch-all". Their specs are fixed; only the
// limits of the priority level "exempt" may be changed.

// mandatorySchema returns the spec of the mandatory flow schema of that name, nil if there is none.
// exempt is matched before all others, so that administrators can always repair a cluster. catch-all has the last
// precedence, so that every request matches a schema.
func mandatorySchema(name string) *flowcontrolv1.FlowSchemaSpec {
	switch name {
	case flowcontrolv1.FlowSchemaNameExempt:
		return &flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			MatchingPrecedence:         exemptPrecedence,
			Rules:                      allRequestsOf("system:masters"),
		}
	case flowcontrolv1.FlowSchemaNameCatchAll:
		return &flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			MatchingPrecedence:         maxPrecedence,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
				Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: allRequestsOf("system:unauthenticated", "system:authenticated"),
		}
	}
	return nil
}

// allRequestsOf returns rules that match every request of the users in the groups.
func allRequestsOf(groups ...string) []flowcontrolv1.PolicyRulesWithSubjects {
	all := []string{"*"}
	rules := flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}
	for _, g := range groups {
		rules.Subjects = append(rules.Subjects, flowcontrolv1.Subject{
			Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: g}})
	}
	return []flowcontrolv1.PolicyRulesWithSubjects{rules}
}

// catchAllLevel returns the fixed spec of the priority level catch-all. It has few shares and no queue: requests
// that get there are those that no schema of the administrator has thought of.
func catchAllLevel() *flowcontrolv1.PriorityLevelConfigurationSpec {
	return &flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: new(int32(5)),
			LendablePercent:          new(int32(0)),
			LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		},
	}
}

// MandatorySchemas returns the flow schemas that every server has. They belong to the caller.
func MandatorySchemas() []*flowcontrolv1.FlowSchema {
	var out []*flowcontrolv1.FlowSchema
	for _, name := range []string{flowcontrolv1.FlowSchemaNameExempt, flowcontrolv1.FlowSchemaNameCatchAll} {
		out = append(out, &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *mandatorySchema(name)})
	}
	return out
}

// MandatoryLevels returns the priority levels that every server has. They belong to the caller.
func MandatoryLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	exempt := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: flowcontrolv1.PriorityLevelConfigurationNameExempt},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32(0)), LendablePercent: new(int32(0))},
		},
	}
	return []*flowcontrolv1.PriorityLevelConfiguration{exempt, {
		ObjectMeta: metav1.ObjectMeta{Name: flowcontrolv1.PriorityLevelConfigurationNameCatchAll}, Spec: *catchAllLevel()}}
}
