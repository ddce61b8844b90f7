{{ config(materialized='view') }}
select id, name from {{ ref('customer_totals') }} where total >= 15
