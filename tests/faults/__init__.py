"""Campaigns: many seeded faults and inputs, each of which has to end well."""
