package flowcontrol

import flowcontrolv1 "k8s.io/api/flowcontrol/v1"

// Every server has the flow schemas and priority levels "exempt" and "catch-all". Their specs are fixed; only the
// limits of the priority level "exempt" may be changed.

// mandatorySchema returns the spec of the mandatory flow schema of that name, nil if there is none.
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

// catchAllLevel returns the spec of the priority level "catch-all".
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
